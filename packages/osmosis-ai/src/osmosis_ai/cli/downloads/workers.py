"""Several things at a time, given up at once on Ctrl-C."""

import threading
from collections.abc import Callable, Iterator, Sequence
from queue import Empty, SimpleQueue


def each_in_parallel[Item, Answer](
    work: Callable[[Item], Answer], items: Sequence[Item], workers: int
) -> Iterator[tuple[Item, Answer]]:
    """Every item with its answer, in the order in which they are done.

    An error of one ends all. The threads are daemons: a thread pool would hold up an interrupted program until its network
    calls time out.
    """
    waiting: SimpleQueue[Item] = SimpleQueue()
    done: SimpleQueue[tuple[Item, Answer] | BaseException] = SimpleQueue()
    stopped = threading.Event()
    for item in items:
        waiting.put(item)

    def loop() -> None:
        while not stopped.is_set():
            try:
                item = waiting.get_nowait()
            except Empty:
                return
            try:
                done.put((item, work(item)))
            except BaseException as error:
                done.put(error)
                return

    for _ in range(min(workers, len(items))):
        threading.Thread(target=loop, daemon=True).start()
    try:
        for _ in items:
            outcome = done.get()
            if isinstance(outcome, BaseException):
                raise outcome
            yield outcome
    finally:
        stopped.set()

"""Several things at a time, given up at once on Ctrl-C."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from queue import Empty, SimpleQueue

_GRACE_S = 1.0


def each_in_parallel[Item, Answer](
    work: Callable[[Item], Answer], items: Sequence[Item], workers: int, stop: threading.Event | None = None
) -> Iterator[tuple[Item, Answer]]:
    """Every item with its answer, in the order in which they are done.

    An error of one ends all: ``stop`` is set, and work that looks at it has a second to end. The threads are daemons: a thread
    pool would hold up an interrupted program until its network calls time out.
    """
    waiting: SimpleQueue[Item] = SimpleQueue()
    done: SimpleQueue[tuple[Item, Answer] | BaseException] = SimpleQueue()
    stopped = stop or threading.Event()
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

    threads = [threading.Thread(target=loop, daemon=True) for _ in range(min(workers, len(items)))]
    try:
        for thread in threads:
            thread.start()
        for _ in items:
            outcome = done.get()
            if isinstance(outcome, BaseException):
                raise outcome
            yield outcome
    finally:
        stopped.set()
        last = time.monotonic() + _GRACE_S
        for thread in threads:
            if thread.ident is not None:
                thread.join(max(0.0, last - time.monotonic()))

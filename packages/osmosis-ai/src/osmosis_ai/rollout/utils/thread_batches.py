"""Short calls in a worker thread, several at a time.

Handing one call to a thread and its result back takes as long as writing a short file, and each further thread that works makes the
event loop wait for the interpreter.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from weakref import WeakKeyDictionary

_PAUSE_SEC = 0.02

type _Call = Callable[[], object]


async def run_in_thread_batch(call: _Call) -> None:
    """Run the call in a worker thread and raise what it raises.

    The first one starts at once. Those that come within the next 20 ms share a thread, one after the other, and wait for
    the last of them.
    """
    loop = asyncio.get_running_loop()
    batches = _batches.get(loop)
    if batches is None:
        batches = _batches[loop] = _Batches()
    await batches.add(call, loop)


class _Batches:
    """The calls of one event loop."""

    def __init__(self) -> None:
        self._next: list[tuple[_Call, asyncio.Future[None]]] = []
        self._not_before = 0.0

    def add(self, call: _Call, loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
        if not self._next:
            loop.call_at(self._not_before, self._start, loop)
        done: asyncio.Future[None] = loop.create_future()
        self._next.append((call, done))
        return done

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        batch, self._next = self._next, []
        self._not_before = loop.time() + _PAUSE_SEC
        errors = loop.run_in_executor(None, _run, [call for call, _ in batch])
        errors.add_done_callback(partial(_settle, [done for _, done in batch]))


_batches: WeakKeyDictionary[asyncio.AbstractEventLoop, _Batches] = WeakKeyDictionary()


def _run(calls: Sequence[_Call]) -> list[BaseException | None]:
    """What each call raised."""
    errors: list[BaseException | None] = []
    for call in calls:
        try:
            call()
            errors.append(None)
        except BaseException as error:
            errors.append(error)
    return errors


def _settle(
    waiting: Sequence[asyncio.Future[None]], errors: asyncio.Future[list[BaseException | None]]
) -> None:
    for done, error in zip(waiting, errors.result(), strict=True):
        if done.done():  # its rollout was cancelled
            continue
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

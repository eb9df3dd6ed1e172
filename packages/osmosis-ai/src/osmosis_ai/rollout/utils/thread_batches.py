"""Short calls in a worker thread, several at a time.

Handing one call to a thread and its result back takes as long as writing a short file, and each further thread that works makes the
event loop wait for the interpreter.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary


class ThreadBatches:
    """Runs calls in worker threads, those of each event loop for itself."""

    def __init__(self, *, pause_sec: float) -> None:
        self._pause_sec = pause_sec
        self._of_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, _Batches] = WeakKeyDictionary()

    async def run[T](self, call: Callable[[], T]) -> T:
        """What the call returns or raises.

        The first one starts at once. Those that come within ``pause_sec`` after it share a thread, one after the other, and wait
        for the last of them.
        """
        loop = asyncio.get_running_loop()
        batches = self._of_loop.get(loop)
        if batches is None:
            batches = self._of_loop[loop] = _Batches(self._pause_sec)
        result: T = await batches.add(call, loop)
        return result


type _Outcomes = list[tuple[Any, BaseException | None]]


class _Batches:
    def __init__(self, pause_sec: float) -> None:
        self._pause_sec = pause_sec
        self._next: list[tuple[Callable[[], Any], asyncio.Future[Any]]] = []
        self._not_before = 0.0

    def add(self, call: Callable[[], Any], loop: asyncio.AbstractEventLoop) -> asyncio.Future[Any]:
        if not self._next:
            loop.call_at(self._not_before, self._start, loop)
        done: asyncio.Future[Any] = loop.create_future()
        self._next.append((call, done))
        return done

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        batch, self._next = self._next, []
        self._not_before = loop.time() + self._pause_sec
        outcomes = loop.run_in_executor(None, _run, [call for call, _ in batch])
        outcomes.add_done_callback(partial(_settle, [done for _, done in batch]))


def _run(calls: Sequence[Callable[[], Any]]) -> _Outcomes:
    """What each call returned and raised."""
    outcomes: _Outcomes = []
    for call in calls:
        try:
            outcomes.append((call(), None))
        except BaseException as error:
            outcomes.append((None, error))
    return outcomes


def _settle(waiting: Sequence[asyncio.Future[Any]], outcomes: asyncio.Future[_Outcomes]) -> None:
    for done, (value, error) in zip(waiting, outcomes.result(), strict=True):
        if done.done():  # its rollout was cancelled
            continue
        if error is None:
            done.set_result(value)
        else:
            done.set_exception(error)

"""Running user code under a budget of seconds."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any

from osmosis_ai.rollout.utils.exit_guard import without_exit

logger = logging.getLogger(__name__)

# Code that goes on this long after its cancellation is not waited for any longer.
ABANDON_AFTER_SEC = 5.0

_abandoned: set[asyncio.Task[Any]] = set()


class DeadlineExceededError(TimeoutError):
    """User code used more than its budget."""


class CancelledInsideError(RuntimeError):
    """User code let a cancellation of its own escape."""


async def run_with_deadline[T](
    call: Callable[[], Coroutine[Any, Any, T]], *, budget_sec: float | None, message: str
) -> T:
    """The result of ``call``, which gets ``budget_sec`` seconds (None: unlimited; 0 or less: it is not called at all).

    Code that swallows the cancellation, blocks the event loop or fails with another error after its budget counts as
    timed out all the same. What does not end within another five seconds is left behind, running. A cancellation from outside
    passes through.

    Raises:
        DeadlineExceededError: with ``message``, when the budget is used up.
        CancelledInsideError: when the code ends as cancelled though nobody cancelled it.
        ExitInsideError: when the code called ``sys.exit``.
    """
    if budget_sec is not None and budget_sec <= 0:
        raise DeadlineExceededError(message)
    try:
        return await (without_exit(call) if budget_sec is None else _run_within(call, budget_sec, message))
    except asyncio.CancelledError as error:
        current = asyncio.current_task()
        if current is not None and current.cancelling():
            raise
        raise CancelledInsideError("user code was cancelled by something of its own") from error


async def _run_within[T](call: Callable[[], Coroutine[Any, Any, T]], budget_sec: float, message: str) -> T:
    started = time.monotonic()
    # Begun at once: code that never waits, like most graders, needs no turn of the event loop.
    task = asyncio.Task(without_exit(call), loop=asyncio.get_running_loop(), eager_start=True)
    pending: set[asyncio.Task[T]] = set()
    if not task.done():
        try:
            _, pending = await asyncio.wait({task}, timeout=budget_sec)
        finally:
            await _end(task)
    # Not the clock alone: an event loop's timers may be a millisecond early.
    late = bool(pending) or time.monotonic() - started > budget_sec
    if late:
        error = None if not task.done() or task.cancelled() else task.exception()
        raise DeadlineExceededError(message) from error
    return task.result()


async def _end(task: asyncio.Task[Any]) -> None:
    """Cancel the task, and leave it behind if it goes on all the same."""
    if task.done():
        return
    task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    task.cancel()
    try:
        await asyncio.wait({task}, timeout=ABANDON_AFTER_SEC)
    finally:
        if not task.done():
            logger.error(
                "User code goes on %g s after it was cancelled; its rollout ends without it",
                ABANDON_AFTER_SEC,
            )
            _abandoned.add(task)
            task.add_done_callback(_abandoned.discard)

"""Running user code under a budget of seconds."""

import asyncio
import time
from collections.abc import Awaitable, Callable


class DeadlineExceededError(TimeoutError):
    """User code used more than its budget."""


async def run_with_deadline[T](
    call: Callable[[], Awaitable[T]], *, budget_sec: float | None, message: str
) -> T:
    """The result of ``call``, which gets ``budget_sec`` seconds (None: unlimited; 0 or less: it is not called at all).

    Code that swallows the cancellation, blocks the event loop or fails with another error after its budget counts as
    timed out all the same. A cancellation from outside passes through.

    Raises:
        DeadlineExceededError: with ``message``, when the budget is used up.
    """
    if budget_sec is None:
        return await call()
    if budget_sec <= 0:
        raise DeadlineExceededError(message)
    started = time.monotonic()
    scope = asyncio.timeout(budget_sec)
    try:
        async with scope:
            value = await call()
    except Exception as error:
        if scope.expired() or time.monotonic() - started > budget_sec:
            raise DeadlineExceededError(message) from error
        raise
    if scope.expired() or time.monotonic() - started > budget_sec:
        raise DeadlineExceededError(message)
    return value

"""Every wait has a deadline and says what was waited for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from osmosis_trainer.errors import TrainerError


class DeadlineError(TrainerError):
    """Something took longer than it may."""

    code = "deadline_exceeded"


@asynccontextmanager
async def within(seconds: float, what: str) -> AsyncGenerator[None]:
    """Raise DeadlineError when the block takes longer than `seconds`."""
    timeout = asyncio.timeout(seconds)
    try:
        async with timeout:
            yield
    except TimeoutError as error:
        if not timeout.expired():
            raise
        raise DeadlineError(f"{what} did not end within {seconds:g} s") from error

"""How many rollouts run at once, and how many wait."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext


class ConcurrencyLimiter:
    """Counts and limits concurrent work. ``max_concurrent`` None means no limit; ``queued`` and ``running`` are live counts."""

    def __init__(self, *, max_concurrent: int | None) -> None:
        if max_concurrent is not None and max_concurrent < 1:
            raise ValueError(f"max_concurrent must be >= 1 or None, got {max_concurrent}")
        self.max_concurrent = max_concurrent
        self.queued = 0
        self.running = 0
        self._slots = None if max_concurrent is None else asyncio.Semaphore(max_concurrent)

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[None]:
        """Wait for a slot and hold it."""
        waiting = True
        self.queued += 1
        try:
            async with self._slots or nullcontext():
                self.queued -= 1
                waiting = False
                self.running += 1
                try:
                    yield
                finally:
                    self.running -= 1
        finally:
            if waiting:  # cancelled before a slot was free
                self.queued -= 1

    def snapshot(self) -> dict[str, int | None]:
        """``max_concurrent``, ``queued`` and ``running`` as JSON."""
        return {"max_concurrent": self.max_concurrent, "queued": self.queued, "running": self.running}

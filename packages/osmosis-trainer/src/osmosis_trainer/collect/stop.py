"""The wish to stop: set once by a signal or by the platform, seen by everything that waits."""

from __future__ import annotations

import asyncio

from osmosis_trainer.errors import TrainerError


class StoppedError(TrainerError):
    """The run was asked to stop; what was finished is on disk."""

    code = "stopped"


class StopSignal:
    """Asks the run to stop. `reason` says who asked."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.reason = ""

    @property
    def requested(self) -> bool:
        return self._event.is_set()

    def request(self, reason: str) -> None:
        """Ask to stop; the first reason stays."""
        if not self.requested:
            self.reason = reason
            self._event.set()

    async def wait(self) -> None:
        """Return once a stop is asked for."""
        await self._event.wait()

    def check(self) -> None:
        """Raise StoppedError when a stop was asked for."""
        if self.requested:
            raise StoppedError(f"stopped: {self.reason}")

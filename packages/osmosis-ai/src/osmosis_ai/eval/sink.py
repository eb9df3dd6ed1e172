"""Where an evaluation reports to."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol

from osmosis_ai.eval.attempt import AttemptRecord
from osmosis_ai.worker.run_client import LogLevel, RunClient


class EvalSink(Protocol):
    """The other side of the runner: a platform, or a folder on a laptop."""

    @property
    def stop_requested(self) -> asyncio.Event:
        """Set when the run is to end early."""

    def finished(self) -> AsyncIterator[Mapping[str, Any]]:
        """Attempts finished in earlier lives of the run (``row_index``, ``run_index``, ``status``, ``reward``, ...)."""

    async def store(self, content: bytes) -> str:
        """Keep a file; its SHA-256."""

    async def attempt(self, record: AttemptRecord) -> None:
        """Keep a finished attempt. It is durable when this returns."""

    def progress(self, **fields: Any) -> None:
        """How far the run is."""

    def log(
        self, message: str, *, level: LogLevel = "info", details: Mapping[str, Any] | None = None
    ) -> None:
        """A line for the people who read the run log."""


class RunClientSink:
    """Reports to the platform."""

    def __init__(self, client: RunClient) -> None:
        self._client = client

    @property
    def stop_requested(self) -> asyncio.Event:
        return self._client.stop_requested

    async def finished(self) -> AsyncIterator[Mapping[str, Any]]:
        async for attempt in self._client.finished_attempts():
            yield attempt

    async def store(self, content: bytes) -> str:
        return await self._client.put_blob(content)

    async def attempt(self, record: AttemptRecord) -> None:
        await self._client.attempt(**record.fields())

    def progress(self, **fields: Any) -> None:
        self._client.progress(**fields)

    def log(
        self, message: str, *, level: LogLevel = "info", details: Mapping[str, Any] | None = None
    ) -> None:
        self._client.log(message, level=level, step="eval", details=details)

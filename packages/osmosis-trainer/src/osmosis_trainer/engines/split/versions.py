"""Policy versions: an immutable folder and a new name for each, on the servers for as long as a request uses it."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from osmosis_trainer.engines.split.probe import Scores, Tolerance, compare
from osmosis_trainer.engines.split.wire import SamplingServer


@dataclass(eq=False, slots=True)
class Version:
    """One published policy. `expected` are the learner's scores of the probe prompts, `before` those of the version that
    it followed, `open` the requests that use it."""

    number: int
    name: str
    folder: Path
    expected: Scores
    before: Scores | None = None
    open: int = 0


class Versions:
    """The versions that servers hold. `others` are adapters beside the policy, by name.

    Names are never used twice, not even after a restart of the worker: a server with a prefix cache would answer from
    the keys of the earlier adapter.
    """

    def __init__(self, folder: Path, prompts: list[list[int]], tolerance: Tolerance) -> None:
        self.live: list[Version] = []
        self.others: dict[str, Path] = {}
        self.prompts = prompts
        self._folder = folder
        self._tolerance = tolerance
        self._run = f"osmosis-{hashlib.sha256(str(folder).encode()).hexdigest()[:8]}-"
        self._current: Version | None = None
        self._released = asyncio.Event()
        shutil.rmtree(folder, ignore_errors=True)

    @property
    def current(self) -> Version | None:
        """The version that new requests use; None before the first."""
        return self._current

    def place(self, number: int) -> tuple[str, Path]:
        """Name and folder of a version to be published."""
        name = f"{self._run}{uuid.uuid4().hex[:8]}-v{number}"
        return name, self._folder / name

    def add(self, version: Version) -> None:
        """From now on servers that come up get this version too."""
        self.live.append(version)

    def switch(self, version: Version) -> None:
        """New requests use this version."""
        self._current = version

    @asynccontextmanager
    async def use(self) -> AsyncIterator[Version]:
        """The current version, kept on the servers until the block ends."""
        assert self._current is not None
        version = self._current
        version.open += 1
        try:
            yield version
        finally:
            version.open -= 1
            if not version.open and version is not self._current:
                self._released.set()

    def unused(self) -> list[Version]:
        """Versions that are neither current nor in use."""
        return [v for v in self.live if v is not self._current and not v.open]

    async def released(self) -> None:
        """Wait until a request ends that was the last one of an older version."""
        self._released.clear()
        if not self.unused():
            await self._released.wait()

    async def install(self, server: SamplingServer, version: Version) -> float:
        """Load a version and compare what the server makes of it with the learner; returns the difference in nats."""
        await server.load(version.name, str(version.folder))
        return await self.verify(server, version)

    async def verify(self, server: SamplingServer, version: Version) -> float:
        """Compare a loaded version with the learner; raises SamplerFaultError when it is another one."""
        got = await server.score(version.name, self.prompts)
        return compare(server.url, got, version.expected, version.before, self._tolerance)

    async def prepare(self, server: SamplingServer) -> None:
        """Bring a server that was away to where the others are, without what an earlier worker of the run left there."""
        loaded = (await server.facts()).adapters
        wanted = {version.name for version in self.live}
        for name in loaded:
            if name.startswith(self._run) and name not in wanted:
                await server.unload(name)
        ready: set[str] = set()
        while missing := [item for item in self._wanted() if item[0] not in ready]:
            for name, folder, version in missing:
                if name not in loaded:
                    await server.load(name, str(folder))
                if version is not None:
                    await self.verify(server, version)
                ready.add(name)

    def _wanted(self) -> list[tuple[str, Path, Version | None]]:
        policies: list[tuple[str, Path, Version | None]] = [(v.name, v.folder, v) for v in self.live]
        return policies + [(name, folder, None) for name, folder in self.others.items()]

    def forget(self, version: Version) -> None:
        """Drop a version that no server holds any more."""
        self.live.remove(version)
        shutil.rmtree(version.folder, ignore_errors=True)

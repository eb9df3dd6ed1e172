"""A new policy on its way to the servers: folder, load, probe, switch; old versions leave when nothing uses them."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from osmosis_trainer.engines.split.durable_learner import DurableLearner
from osmosis_trainer.engines.split.pool import ServerPool
from osmosis_trainer.engines.split.probe import probe_rows
from osmosis_trainer.engines.split.versions import Version, Versions
from osmosis_trainer.engines.split.wire import SamplingServer
from osmosis_trainer.errors import EngineError

_LEAVE_S = 10.0


class Publisher:
    """Publishes what the learner has. `slots`: adapters that a server holds ready, None where it does not tell."""

    def __init__(
        self,
        learner: DurableLearner,
        versions: Versions,
        pool: ServerPool,
        *,
        wait_s: float,
    ) -> None:
        self.slots: int | None = None
        self.gap = 0.0
        self._learner = learner
        self._versions = versions
        self._pool = pool
        self._wait_s = wait_s

    async def publish(self, number: int) -> None:
        """Make the learner's policy the one that new requests use, under the version `number`.

        Raises SamplerFaultError when a server does not sample from it, EngineError when no server is there.
        """
        versions = self._versions
        self._pool.raise_fault()
        await self._make_room()
        name, folder = versions.place(number)
        await self._learner.export(folder)
        expected = await self._learner.score(probe_rows(versions.prompts))
        before = versions.current.expected if versions.current is not None else None
        version = Version(number, name, folder, expected, before)
        versions.add(version)

        async def install(server: SamplingServer) -> None:
            self.gap = await versions.install(server, version)

        if not await self._pool.everywhere(install):
            # Whoever comes back first gets it on the way.
            await self._pool.available()
        versions.switch(version)
        await self.retire()

    async def retire(self) -> None:
        """Take versions that nothing uses any more from the servers."""
        for version in self._versions.unused():
            self._versions.forget(version)
            await self._pool.everywhere(lambda server, name=version.name: _unload(server, name))  # type: ignore[misc]

    async def _make_room(self) -> None:
        """Wait for the last request of the oldest version where the servers would otherwise hold too many."""
        while self.slots is not None and len(self._versions.live) >= self.slots:
            if self._versions.unused():
                await self.retire()
                continue
            try:
                async with asyncio.timeout(self._wait_s):
                    await self._versions.released()
            except TimeoutError:
                raise EngineError(
                    f"requests of {len(self._versions.live)} policy versions are still open after {self._wait_s:g} s, and the "
                    f"sampling servers hold {self.slots} adapters; raise their number"
                ) from None


async def _unload(server: SamplingServer, name: str) -> None:
    await server.unload(name)


async def leave(pool: ServerPool, versions: Versions) -> None:
    """Leave nothing of the run on the servers, as far as they answer soon; the next run removes what is left."""
    names = [version.name for version in versions.live] + list(versions.others)

    async def clear(server: SamplingServer) -> None:
        for name in names:
            await server.unload(name)

    with suppress(EngineError, TimeoutError):
        async with asyncio.timeout(_LEAVE_S):
            await pool.everywhere(clear)

"""Weights that are no longer needed are removed from the server, where it lets us."""

from __future__ import annotations

import logging
from collections import deque
from urllib.parse import quote

from osmosis_trainer.engines.tinker.archive import checkpoint_parts
from osmosis_trainer.engines.tinker.http import Transport
from osmosis_trainer.errors import EngineError

logger = logging.getLogger(__name__)

# A run keeps its last two states; the third is for the moment between writing one and dropping another.
_STATES, _VERSIONS = 3, 2


class Retention:
    """Removes all but the newest weights that this process made."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._states: deque[str] = deque()
        self._versions: deque[str] = deque()
        self._possible = True

    async def kept(self, path: str) -> None:
        """A state was saved at `path`."""
        self._states.append(path)
        await self._trim(self._states, _STATES)

    async def published(self, path: str) -> None:
        """A version was published at `path`."""
        self._versions.append(path)
        await self._trim(self._versions, _VERSIONS)

    async def _trim(self, paths: deque[str], keep: int) -> None:
        while len(paths) > keep:
            await self._remove(paths.popleft())

    async def _remove(self, path: str) -> None:
        if not self._possible:
            return
        try:
            run, checkpoint = checkpoint_parts(path)
            place = f"/api/v1/training_runs/{run}/checkpoints/{quote(checkpoint)}"
            response = await self._transport.request("DELETE", place, patience_s=0.0)
            self._possible = response.status_code not in (404, 405, 501)
        except EngineError as error:
            logger.warning("%s was not removed: %s", path, error)

"""The files that rollouts wrote to their artifacts folder, on their way to where they are kept."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from osmosis_ai.worker.rollout_files import read_artifacts


@dataclass(frozen=True, slots=True)
class Artifact:
    """A file that a rollout left behind, stored as a blob. ``path`` is relative, with forward slashes; ``size`` in bytes."""

    path: str
    size: int
    sha256: str


async def store_artifacts(
    root: Path, rollout_id: str, store: Callable[[bytes], Awaitable[str]]
) -> list[Artifact]:
    """Give every artifact of a rollout to ``store``, which answers with its SHA-256; one file in memory at a time.

    The limits are those of :func:`osmosis_ai.worker.rollout_files.read_artifacts`. Raises only what ``store`` raises.
    """
    files = read_artifacts(root, rollout_id)
    stored: list[Artifact] = []
    while (found := await asyncio.to_thread(next, files, None)) is not None:
        path, content = found
        stored.append(Artifact(path, len(content), await store(content)))
    return stored

"""Checkpoints: the adapter of a step in PEFT format, as a folder to load and as one tar to publish."""

from __future__ import annotations

import io
import shutil
import tarfile
from dataclasses import dataclass
from pathlib import Path

from osmosis_trainer.engines.protocol import Engine
from osmosis_trainer.state.folder import MANIFEST, atomic_folder, verify


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A published adapter: its folder and the same files as tar bytes."""

    step: int
    folder: Path
    tar: bytes


async def write_checkpoint(parent: Path, step: int, engine: Engine) -> None:
    """Export the current adapter to `<parent>/step-<step>`; an existing one of that step is replaced."""
    folder = parent / f"step-{step}"
    async with atomic_folder(folder) as draft:
        await engine.export_adapter(draft)


def read_checkpoint(parent: Path, step: int) -> Checkpoint:
    """A checkpoint written earlier; raises StateError when it is not whole."""
    folder = parent / f"step-{step}"
    verify(folder)
    return Checkpoint(step, folder, pack(folder))


def is_unpublished(best: int, step: int, save_freq: int) -> bool:
    """Whether the best checkpoint is not among those published every `save_freq` steps up to the final one of `step`."""
    return 0 < best < step and best % save_freq != 0


def drop_checkpoints(parent: Path, keep: int | None, *, keep_also: int) -> None:
    """Delete all but the newest `keep` checkpoint folders and that of step `keep_also`; None keeps all."""
    steps = sorted(int(path.name.removeprefix("step-")) for path in parent.glob("step-*"))
    for step in steps[: -keep if keep else 0]:
        if step != keep_also:
            shutil.rmtree(parent / f"step-{step}")


def pack(folder: Path) -> bytes:
    """The files of an adapter folder as a tar whose bytes depend on their names and content alone."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.name != MANIFEST:
                entry = tarfile.TarInfo(str(path.relative_to(folder)))
                entry.size = path.stat().st_size
                entry.mode = 0o644
                with path.open("rb") as file:
                    archive.addfile(entry, file)
    return buffer.getvalue()

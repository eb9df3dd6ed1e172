"""Atomic folders: written beside their place, hashed, flushed to disk, then renamed. A reader sees all of one or nothing."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from osmosis_trainer.errors import StateError

MANIFEST = "manifest.json"


@asynccontextmanager
async def atomic_folder(target: Path) -> AsyncGenerator[Path]:
    """Fill the yielded folder; it becomes `target`, replacing it, when the block ends without an error.

    A manifest with size and SHA-256 of every file is added. Left-overs of an earlier, killed writer are removed.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    for leftover in target.parent.glob(f".{target.name}.*"):
        shutil.rmtree(leftover)
    draft = target.parent / f".{target.name}.new"
    draft.mkdir()
    try:
        yield draft
        _seal(draft)
    except BaseException:
        shutil.rmtree(draft)
        raise
    if target.exists():
        target.rename(target.parent / f".{target.name}.old")
    draft.rename(target)
    _sync(target.parent)
    shutil.rmtree(target.parent / f".{target.name}.old", ignore_errors=True)


def verify(folder: Path) -> None:
    """Compare every file with the manifest; raises StateError naming the first piece that is missing or changed."""
    path = folder / MANIFEST
    try:
        manifest: dict[str, Any] = json.loads(path.read_text())["files"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StateError(f"{path} cannot be read: {error}") from error
    present = {str(file.relative_to(folder)) for file in _files(folder)}
    for name, expected in manifest.items():
        if name not in present:
            raise StateError(f"{folder / name} is missing")
        if _digest(folder / name) != expected:
            raise StateError(f"{folder / name} does not have the content that was written")


def _seal(folder: Path) -> None:
    files = {str(file.relative_to(folder)): _digest(file) for file in _files(folder)}
    (folder / MANIFEST).write_text(json.dumps({"files": files}, indent=1))
    for path in [*sorted(folder.rglob("*")), folder]:
        _sync(path)


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / MANIFEST)


def _digest(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"size": path.stat().st_size, "sha256": digest}


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

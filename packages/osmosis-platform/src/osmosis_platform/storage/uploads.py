"""Uploads in parts: where parts wait until the whole is assembled into a blob."""

from __future__ import annotations

import hashlib
import math
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Set
from dataclasses import dataclass
from pathlib import Path

import anyio.to_thread

from osmosis_platform.errors import Conflict, InvalidInput, NotFound
from osmosis_platform.storage.store import CHUNK, BlobStore, StoredBlob

PART_SIZE = 32 * 1024 * 1024


def plan_parts(size: int, part_size: int = PART_SIZE) -> list[int]:
    """Sizes of the parts of a file of `size` bytes (at least 1)."""
    count = max(1, math.ceil(size / part_size))
    return [part_size] * (count - 1) + [size - part_size * (count - 1)]


@dataclass(frozen=True, slots=True)
class StoredPart:
    """A part that is completely there. Its SHA-256 (64 hex digits) is its ETag too."""

    number: int
    size: int
    sha256: str
    path: Path


class PartStore:
    """Parts of open uploads: `<folder>/<upload id>/<part number>-<SHA-256>`; a part is there completely or not at all.

    Sending a part again replaces it. The hashes let a client that was interrupted find out what it need not send again.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def _folder(self, upload_id: str) -> Path:
        return self.folder / upload_id

    async def receive(self, upload_id: str, part: int, size: int, body: AsyncIterator[bytes]) -> str:
        """Write one part from a request body; returns its ETag. Raises InvalidInput when the size differs."""
        folder = self._folder(upload_id)
        folder.mkdir(exist_ok=True)
        handle, name = tempfile.mkstemp(dir=folder, prefix=f"{part}.")
        path = Path(name)
        received, digest = 0, hashlib.sha256()
        try:
            async for chunk in body:
                received += len(chunk)
                if received > size:
                    break
                await anyio.to_thread.run_sync(_write_all, handle, chunk, digest)
            _check_size(part, size, received)
            await anyio.to_thread.run_sync(os.fsync, handle)
            target = folder / f"{part}-{digest.hexdigest()}"
            try:
                path.replace(target)
            except FileNotFoundError as error:  # meanwhile the upload was ended and its folder removed
                raise NotFound(f"Upload {upload_id} is over; begin a new one.") from error
            for older in folder.glob(f"{part}-*"):
                if older != target:
                    older.unlink(missing_ok=True)
        finally:
            os.close(handle)
            path.unlink(missing_ok=True)
        return digest.hexdigest()

    def stored(self, upload_id: str) -> dict[int, StoredPart]:
        """The parts that are there, by number."""
        found: dict[int, StoredPart] = {}
        folder = self._folder(upload_id)
        for path in folder.glob("*-*") if folder.is_dir() else ():
            number, _, sha256 = path.name.partition("-")
            found[int(number)] = StoredPart(int(number), path.stat().st_size, sha256, path)
        return found

    def check_complete(self, upload_id: str, sizes: list[int], etags: dict[int, str] | None) -> None:
        """Raise Conflict unless every part is there with its size (and, when given, its ETag)."""
        stored = self.stored(upload_id)
        for number, size in enumerate(sizes, start=1):
            part = stored.get(number)
            if part is None or part.size != size:
                raise Conflict(
                    f"part {number} of {len(sizes)} has not been uploaded: send it, then complete again"
                )
            if etags is not None and etags.get(number) != part.sha256:
                raise Conflict(f"part {number} has another ETag than the one given: send it again")

    def assemble(self, upload_id: str, parts: int, blobs: BlobStore) -> StoredBlob:
        """Join the parts into one blob."""
        stored = self.stored(upload_id)
        with blobs.writer() as writer:
            for number in range(1, parts + 1):
                with stored[number].path.open("rb") as file:
                    shutil.copyfileobj(file, writer, CHUNK)
        return writer.stored

    def discard(self, upload_id: str) -> None:
        """Remove the parts of an upload."""
        shutil.rmtree(self._folder(upload_id), ignore_errors=True)

    def remove_others(self, kept: Set[str], before: float) -> int:
        """Remove the parts of all uploads but these, where none came since then (Unix seconds); returns of how many."""
        others = [
            folder
            for folder in self.folder.iterdir()
            if folder.name not in kept and folder.stat().st_mtime < before
        ]
        for folder in others:
            shutil.rmtree(folder, ignore_errors=True)
        return len(others)


async def etag_of(part: int, size: int, body: AsyncIterator[bytes]) -> str:
    """The ETag of a part that is not needed any more; nothing is kept. Raises InvalidInput when the size differs."""
    received, digest = 0, hashlib.sha256()
    async for chunk in body:
        received += len(chunk)
        if received > size:
            break
        digest.update(chunk)
    _check_size(part, size, received)
    return digest.hexdigest()


def _check_size(part: int, size: int, received: int) -> None:
    if received != size:
        raise InvalidInput(
            f"part {part} must have {size} bytes, got {received}{'+' if received > size else ''}"
        )


def _write_all(handle: int, data: bytes, digest: hashlib._Hash) -> None:
    digest.update(data)
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]

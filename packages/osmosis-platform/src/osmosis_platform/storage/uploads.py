"""Uploads in parts: where parts wait until the whole is assembled into a blob."""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import anyio.to_thread

from osmosis_platform.errors import Conflict, InvalidInput
from osmosis_platform.storage.store import CHUNK, BlobStore, StoredBlob

PART_SIZE = 32 * 1024 * 1024


def plan_parts(size: int, part_size: int = PART_SIZE) -> list[int]:
    """Sizes of the parts of a file of `size` bytes (at least 1)."""
    count = max(1, math.ceil(size / part_size))
    return [part_size] * (count - 1) + [size - part_size * (count - 1)]


class PartStore:
    """Parts of open uploads: `<folder>/<upload id>/<part number>`; a part is there completely or not at all."""

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
        received = 0
        try:
            async for chunk in body:
                received += len(chunk)
                if received > size:
                    break
                await anyio.to_thread.run_sync(_write_all, handle, chunk)
            if received != size:
                raise InvalidInput(
                    f"part {part} must have {size} bytes, got {received}{'+' if received > size else ''}"
                )
            await anyio.to_thread.run_sync(os.fsync, handle)
            path.replace(folder / str(part))
        finally:
            os.close(handle)
            path.unlink(missing_ok=True)
        return self.etag(upload_id, part)

    def etag(self, upload_id: str, part: int) -> str:
        """An opaque word that changes when the part is sent again."""
        stat = (self._folder(upload_id) / str(part)).stat()
        return f"{stat.st_size:x}-{stat.st_mtime_ns:x}"

    def check_complete(self, upload_id: str, sizes: list[int], etags: dict[int, str] | None) -> None:
        """Raise Conflict unless every part is there with its size (and, when given, its ETag)."""
        for number, size in enumerate(sizes, start=1):
            path = self._folder(upload_id) / str(number)
            if not path.is_file() or path.stat().st_size != size:
                raise Conflict(
                    f"part {number} of {len(sizes)} has not been uploaded: send it, then complete again"
                )
            if etags is not None and etags.get(number) != self.etag(upload_id, number):
                raise Conflict(f"part {number} has another ETag than the one given: send it again")

    def assemble(self, upload_id: str, parts: int, blobs: BlobStore) -> StoredBlob:
        """Join the parts into one blob."""
        with blobs.writer() as writer:
            for number in range(1, parts + 1):
                with (self._folder(upload_id) / str(number)).open("rb") as file:
                    shutil.copyfileobj(file, writer, CHUNK)
        return writer.stored

    def discard(self, upload_id: str) -> None:
        """Remove the parts of an upload."""
        shutil.rmtree(self._folder(upload_id), ignore_errors=True)


def _write_all(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]

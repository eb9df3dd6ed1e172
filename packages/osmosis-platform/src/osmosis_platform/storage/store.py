"""The local blob store: files named by the SHA-256 of their content, written once, never changed."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from osmosis_platform.errors import InvalidInput, NotFound

SHA256 = re.compile(r"^[0-9a-f]{64}$")
CHUNK = 1024 * 1024


@dataclass(frozen=True, slots=True)
class StoredBlob:
    """A blob's name (SHA-256, 64 hex digits) and size in bytes."""

    sha256: str
    size: int


class BlobStore:
    """Blobs below one folder. A blob is visible only when complete: written aside, flushed to disk, then renamed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._incoming = folder / "incoming"
        self._incoming.mkdir(parents=True, exist_ok=True)
        # Between a blob that is stored once more and one that is removed as unused.
        self._guard = threading.Lock()

    def clear_incoming(self) -> None:
        """Remove writes that a crash cut off; only while no other process writes."""
        for leftover in self._incoming.iterdir():
            leftover.unlink(missing_ok=True)

    def path(self, sha256: str) -> Path:
        """Where the blob lies (it need not exist). Raises InvalidInput for a malformed name."""
        if not SHA256.match(sha256):
            raise InvalidInput(f"{sha256[:80]!r} is not a SHA-256")
        return self.folder / sha256[:2] / sha256[2:4] / sha256

    def exists(self, sha256: str) -> bool:
        """Whether the blob is stored."""
        return self.path(sha256).is_file()

    def open(self, sha256: str) -> BinaryIO:
        """The blob, opened for reading. Raises NotFound."""
        try:
            return self.path(sha256).open("rb")
        except FileNotFoundError:
            raise NotFound(f"blob {sha256} is not stored") from None

    def read_bytes(self, sha256: str) -> bytes:
        """The whole blob; only for small ones."""
        with self.open(sha256) as file:
            return file.read()

    def put_bytes(self, data: bytes, *, expected: str | None = None) -> StoredBlob:
        """Store bytes; with `expected`, refuse content of another hash (InvalidInput)."""
        with self.writer(expected=expected) as writer:
            writer.write(data)
        return writer.stored

    def put_file(self, source: Path) -> StoredBlob:
        """Store a copy of a file."""
        with source.open("rb") as file, self.writer() as writer:
            shutil.copyfileobj(file, writer, CHUNK)
        return writer.stored

    @contextmanager
    def writer(self, *, expected: str | None = None) -> Iterator[BlobWriter]:
        """A file-like writer; the blob appears when the block ends without error."""
        handle, name = tempfile.mkstemp(dir=self._incoming)
        path = Path(name)
        writer = BlobWriter(handle)
        try:
            yield writer
            writer.finish()
            if expected is not None and writer.sha256 != expected:
                raise InvalidInput(
                    f"content hashes to {writer.sha256}, not to {expected}", code="HASH_MISMATCH"
                )
            self._publish(path, writer)
        finally:
            writer.close()
            path.unlink(missing_ok=True)

    def _publish(self, path: Path, writer: BlobWriter) -> None:
        target = self.path(writer.sha256)
        writer.stored = StoredBlob(writer.sha256, writer.size)
        target.parent.mkdir(parents=True, exist_ok=True)
        with self._guard:
            if target.is_file():
                os.utime(target)  # whoever stores it is about to refer to it
                return
            path.replace(target)
        _sync_folder(target.parent)

    def older_than(self, moment: float) -> Iterator[StoredBlob]:
        """The blobs that nobody has stored since then (Unix seconds)."""
        for path in self.folder.glob("[0-9a-f][0-9a-f]/[0-9a-f][0-9a-f]/*"):
            with suppress(FileNotFoundError):
                found = path.stat()
                if SHA256.match(path.name) and found.st_mtime < moment:
                    yield StoredBlob(path.name, found.st_size)

    def remove(self, sha256: str, unless_since: float) -> bool:
        """Remove a blob that nothing refers to; False when it was stored again since then (Unix seconds)."""
        path = self.path(sha256)
        with self._guard:
            if path.is_file() and path.stat().st_mtime >= unless_since:
                return False
            path.unlink(missing_ok=True)
        return True


class BlobWriter:
    """Hashes and counts what it writes."""

    stored: StoredBlob

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._hash = hashlib.sha256()
        self._open = True
        self.size = 0

    @property
    def sha256(self) -> str:
        """Hash of what was written so far."""
        return self._hash.hexdigest()

    def write(self, data: bytes) -> int:
        """Append bytes."""
        view = memoryview(data)
        while view:
            view = view[os.write(self._handle, view) :]
        self._hash.update(data)
        self.size += len(data)
        return len(data)

    def finish(self) -> None:
        """Flush to disk."""
        os.fsync(self._handle)

    def close(self) -> None:
        """Close the file."""
        if self._open:
            self._open = False
            os.close(self._handle)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

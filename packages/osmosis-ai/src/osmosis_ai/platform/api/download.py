"""Fetching one file: beside its place, checked for size and hash, then moved into place in one step.

What a process that was killed has left is used by the next one, where the server tells the hash of the whole file
(``Repr-Digest``, RFC 9530), so that a wrong continuation cannot go unnoticed.
"""

import errno
import hashlib
import os
import sys
import threading
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import httpx

from osmosis_ai.platform.api.transfer import CHUNK, open_stream, safe_text
from osmosis_ai.platform.errors import DiskFullError, TransferError

if sys.platform != "win32":
    import fcntl

ATTEMPTS = 3
_FIRST_WAIT_S = 0.5
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_RETRY_STATUSES = {403, 429}  # 403: the address has expired
Added = Callable[[int], None]
Address = Callable[[bool], str | None]
Place = Callable[[Mapping[str, str]], Path]


def partial_path(target: Path) -> Path:
    """Where the bytes of a file wait until they are complete: a hidden sibling."""
    mark = hashlib.sha256(target.name.encode()).hexdigest()[:8]
    return target.with_name(f".{target.name[:40]}.{mark}.partial")


def fetch(
    client: httpx.Client,
    address: Address,
    target: Path,
    *,
    expected_size: int | None,
    added: Added = lambda _: None,
    stop: threading.Event | None = None,
    place: Place | None = None,
) -> Path:
    """Download a file, with up to three tries that go on where the one before broke off.

    ``address(renew)`` gives the address, a new one when ``renew`` is true, or None when there is none. ``added`` hears how many
    bytes came (negative when they are thrown away). Whatever happens, nothing but a complete file is left. ``place`` chooses the
    file's name beside ``target`` by the headers of the answer; what it raises ends the download. Returns where the file is.

    Raises:
        TransferError: refused, still failing, of another size or hash, or stopped.
        DiskFullError: there is no room.
    """
    stop = stop or threading.Event()
    one = _Download(client, target, expected_size, added, stop, place)
    renew = False
    try:
        for attempt in range(ATTEMPTS):
            if attempt:
                stop.wait(_FIRST_WAIT_S * 2 ** (attempt - 1))
            url = address(renew)
            if url is None:
                raise TransferError("the platform gave no address")
            try:
                return one.attempt(url)
            except TransferError as error:
                status = error.status_code
                final = status is not None and 400 <= status < 500 and status not in _RETRY_STATUSES
                hopeless = final or isinstance(error, DiskFullError | _BusyError) or stop.is_set()
                if hopeless or attempt == ATTEMPTS - 1:
                    raise
                renew = status == 403
    except _BusyError:
        raise
    except BaseException:
        partial_path(target).unlink(missing_ok=True)
        one.forget()
        raise
    raise AssertionError("unreachable")


class _BusyError(TransferError):
    """Another process is filling the partial file."""


class _Download:
    """The state of one file across tries."""

    def __init__(
        self,
        client: httpx.Client,
        target: Path,
        expected_size: int | None,
        added: Added,
        stop: threading.Event,
        place: Place | None,
    ) -> None:
        self._client, self._target, self._size = client, target, expected_size
        self._added, self._stop, self._place = added, stop, place
        self._final = target
        self._counted = 0

    def forget(self) -> None:
        """The bytes that came do not count any more."""
        self._count(-self._counted)

    def attempt(self, url: str) -> Path:
        """Fetch what is missing and move the file into place."""
        partial = partial_path(self._target)
        try:
            self._target.parent.mkdir(parents=True, exist_ok=True)
            with _opened(partial) as file:
                self._fill(file, url)
                partial.chmod(0o644)
                partial.replace(self._final)
        except httpx.HTTPError as error:
            raise TransferError(f"{self._target.name}: {safe_text(error, url)}") from error
        except OSError as error:
            if error.errno in _NO_ROOM:
                raise DiskFullError(
                    f"The disk is full: {self._target} could not be written. Make room and run the command again; "
                    "files that are complete are kept.",
                    details={"path": str(self._target)},
                ) from error
            raise TransferError(f"{self._target.name}: cannot write: {error.strerror}") from error
        return self._final

    def _fill(self, file: BinaryIO, url: str) -> None:
        offset = file.seek(0, os.SEEK_END)
        if offset and (self._size is None or offset < self._size):
            try:
                with open_stream(self._client, url, offset=offset) as response:
                    if response.status_code == 206 and _digest(response) is not None:
                        return self._receive(file, response, offset)
                    if response.status_code != 206:
                        return self._receive(file, response, 0)
            except TransferError as error:
                if error.status_code != 416:
                    raise
        with open_stream(self._client, url) as response:
            self._receive(file, response, 0)
        return None

    def _receive(self, file: BinaryIO, response: httpx.Response, offset: int) -> None:
        if self._place is not None:
            self._final = self._place(response.headers)
        digest = hashlib.sha256()
        self._count(-self._counted)
        file.truncate(offset)
        file.seek(0)
        while block := file.read(CHUNK):
            digest.update(block)
        self._count(offset)
        for block in response.iter_bytes(CHUNK):
            if self._stop.is_set():
                raise TransferError(f"The transfer of {self._target.name} was stopped.")
            view = memoryview(block)
            while view:  # a nearly full disk takes a part of a block
                view = view[file.write(view) :]
            digest.update(block)
            self._count(len(block))
        size, expected = file.tell(), _digest(response)
        if self._size is not None and size != self._size:
            if size > self._size:
                file.truncate(0)
            raise TransferError(f"{self._target.name}: expected {self._size} bytes, got {size}.")
        if expected is not None and digest.digest() != expected:
            file.truncate(0)
            raise TransferError(
                f"{self._target.name}: the bytes that came do not have the hash that was announced."
            )

    def _count(self, bytes_added: int) -> None:
        self._counted += bytes_added
        if bytes_added:
            self._added(bytes_added)


def _digest(response: httpx.Response) -> bytes | None:
    """SHA-256 of the whole file, if the server tells it."""
    for item in response.headers.get("Repr-Digest", "").split(","):
        name, _, value = item.strip().partition("=")
        if name == "sha-256":
            try:
                return b64decode(value.strip(":"), validate=True)
            except ValueError:
                return None
    return None


@contextmanager
def _opened(partial: Path) -> Iterator[BinaryIO]:
    """The partial file, for this process alone.

    Raises:
        TransferError: another process is filling it.
    """
    while True:
        with os.fdopen(os.open(partial, os.O_RDWR | os.O_CREAT, 0o600), "r+b", buffering=0) as file:
            if sys.platform != "win32":
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise _BusyError("another command is downloading this file") from None
            if _is_same(file, partial):
                yield file
                return


def _is_same(file: BinaryIO, path: Path) -> bool:
    """Whether the open file still has this name: another process may just have finished it."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False

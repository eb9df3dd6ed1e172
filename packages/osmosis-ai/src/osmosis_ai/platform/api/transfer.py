"""Requests to presigned addresses: sending a part of a file, opening a file to fetch."""

import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import httpx

from osmosis_ai.platform.errors import TransferError
from osmosis_ai.platform.urls import is_loopback, is_safe_transfer_url

_RETRY_STATUSES = {429, 500, 502, 503, 504}
_UPLOAD_ATTEMPTS = 5
_UPLOAD_WAITS_S = (1.0, 2.0, 4.0, 8.0)
_MAX_REDIRECTS = 20
CHUNK = 1024 * 1024
Progress = Callable[[int], None]


def transfer_client(url: str, timeout_s: float = 600.0) -> httpx.Client:
    """A client without credentials: everything a presigned address needs is in the address."""
    loopback = is_loopback(urlsplit(url).hostname or "")
    return httpx.Client(timeout=httpx.Timeout(timeout_s, connect=30.0), trust_env=not loopback)


def require_safe(url: str) -> None:
    """Refuse unencrypted addresses of other machines.

    Raises:
        TransferError: the address is neither https nor on this machine.
    """
    if not is_safe_transfer_url(url):
        raise TransferError(
            "The platform gave an address that is not encrypted (https); the file was not transferred."
        )


def upload_part(
    client: httpx.Client,
    url: str,
    file: Path,
    *,
    offset: int = 0,
    size: int,
    headers: Mapping[str, str] | None = None,
    progress: Progress = lambda _: None,
    stop: threading.Event | None = None,
) -> str | None:
    """PUT ``size`` bytes of a file from ``offset``; returns the ETag without quotes, if the answer has one.

    ``progress`` is called with the number of bytes sent so far (it goes back when a try is repeated).

    Raises:
        TransferError: refused, still failing after five tries, or stopped.
    """
    require_safe(url)
    stop = stop or threading.Event()
    problem = ""
    for attempt in range(_UPLOAD_ATTEMPTS):
        if attempt:
            stop.wait(_UPLOAD_WAITS_S[attempt - 1])
        try:
            content = _read_range(file, offset, size, progress, stop)
            response = client.put(
                url, content=content, headers={**(headers or {}), "Content-Length": str(size)}
            )
        except httpx.HTTPError as error:
            problem = safe_text(error, url)
            continue
        if response.is_success:
            etag = response.headers.get("ETag")
            return etag.strip('"') if etag else None
        problem = f"HTTP {response.status_code}{_reason(response)}"
        if response.status_code not in _RETRY_STATUSES:
            break
    raise TransferError(f"Upload of {file.name} failed: {problem}.")


def range_sha256(file: Path, offset: int, size: int, stop: threading.Event) -> str:
    """SHA-256 of a part of a file, 64 hex digits.

    Raises:
        TransferError: stopped.
    """
    digest = hashlib.sha256()
    for block in _read_range(file, offset, size, lambda _: None, stop):
        digest.update(block)
    return digest.hexdigest()


@contextmanager
def open_stream(client: httpx.Client, url: str, *, offset: int = 0) -> Iterator[httpx.Response]:
    """An open answer to a GET, after following redirects to safe addresses only.

    With an ``offset`` it may be the whole file (200) or what follows the offset (206).

    Raises:
        TransferError: refused, with ``details["status_code"]``.
    """
    headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={offset}-"} if offset else {})}
    for _ in range(_MAX_REDIRECTS + 1):
        require_safe(url)
        response = client.send(client.build_request("GET", url, headers=headers), stream=True)
        try:
            if response.is_success:
                yield response
                return
        finally:
            response.close()
        if not response.has_redirect_location:
            raise TransferError(
                f"HTTP {response.status_code} for the file's address",
                details={"status_code": response.status_code},
            )
        url = urljoin(url, response.headers["Location"])
    raise TransferError("Too many redirects for the file's address")


def _read_range(
    file: Path, offset: int, size: int, progress: Progress, stop: threading.Event
) -> Iterator[bytes]:
    sent = 0
    with file.open("rb") as handle:
        handle.seek(offset)
        while sent < size and (block := handle.read(min(CHUNK, size - sent))):
            if stop.is_set():
                raise TransferError(f"The transfer of {file.name} was stopped.")
            sent += len(block)
            progress(sent)
            yield block


def _reason(response: httpx.Response) -> str:
    """What a platform that keeps the files itself says; other stores answer in XML, for programs."""
    try:
        said = response.json().get("error")
    except (ValueError, AttributeError):
        return ""
    return f": {said.rstrip('.')}" if isinstance(said, str) else ""


def safe_text(error: Exception, url: str) -> str:
    """The error without the address: a presigned address is a password."""
    return str(error).replace(url, "<redacted URL>") or type(error).__name__

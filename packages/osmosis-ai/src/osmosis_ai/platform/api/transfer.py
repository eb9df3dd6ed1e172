"""Uploading and downloading files through presigned addresses."""

import glob
import os
import tempfile
import time
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
_CHUNK = 1024 * 1024
_PARTIAL_SUFFIX = ".partial"
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
    pause: Callable[[float], None] = time.sleep,
) -> str | None:
    """PUT ``size`` bytes of a file from ``offset``; returns the ETag without quotes, if the answer has one.

    ``progress`` is called with the number of bytes sent so far (it goes back when a try is repeated).

    Raises:
        TransferError: refused, or still failing after five tries.
    """
    require_safe(url)
    problem = ""
    for attempt in range(_UPLOAD_ATTEMPTS):
        if attempt:
            pause(_UPLOAD_WAITS_S[attempt - 1])
        try:
            content = _read_range(file, offset, size, progress)
            response = client.put(
                url, content=content, headers={**(headers or {}), "Content-Length": str(size)}
            )
        except httpx.HTTPError as error:
            problem = _safe_text(error, url)
            continue
        if response.is_success:
            etag = response.headers.get("ETag")
            return etag.strip('"') if etag else None
        problem = f"HTTP {response.status_code}{_reason(response)}"
        if response.status_code not in _RETRY_STATUSES:
            break
    raise TransferError(f"Upload of {file.name} failed: {problem}.")


def download(
    client: httpx.Client,
    url: str,
    target: Path,
    *,
    expected_size: int | None,
    progress: Progress = lambda _: None,
) -> httpx.Headers:
    """GET a file into ``target``: through a hidden sibling, checked for its size, moved into place in one step.

    Returns the answer's headers.

    Raises:
        TransferError: refused, broken off, or of another size. ``details["status_code"]`` is set when there was an answer.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(
        dir=target.parent, prefix=_partial_prefix(target), suffix=_PARTIAL_SUFFIX
    )
    partial = Path(temporary)
    try:
        with os.fdopen(handle, "wb") as file, _open_stream(client, url) as response:
            for block in response.iter_bytes(_CHUNK):
                file.write(block)
                progress(len(block))
            headers = response.headers
        size = partial.stat().st_size
        if expected_size is not None and size != expected_size:
            raise TransferError(f"{target.name}: expected {expected_size} bytes, got {size}.")
        partial.chmod(0o644)
        partial.replace(target)
        return headers
    except httpx.HTTPError as error:
        raise TransferError(f"{target.name}: {_safe_text(error, url)}") from error
    except OSError as error:
        raise TransferError(f"{target.name}: cannot write: {error.strerror}") from error
    finally:
        partial.unlink(missing_ok=True)


def remove_partials(target: Path) -> None:
    """Remove what downloads into ``target`` left that were given up in the middle."""
    for partial in target.parent.glob(f"{glob.escape(_partial_prefix(target))}*{_PARTIAL_SUFFIX}"):
        partial.unlink(missing_ok=True)


def _partial_prefix(target: Path) -> str:
    return f".{target.name[:100]}."


@contextmanager
def _open_stream(client: httpx.Client, url: str) -> Iterator[httpx.Response]:
    """An open answer to a GET, after following redirects to safe addresses only."""
    for _ in range(_MAX_REDIRECTS + 1):
        require_safe(url)
        response = client.send(
            client.build_request("GET", url, headers={"Accept-Encoding": "identity"}), stream=True
        )
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


def _read_range(file: Path, offset: int, size: int, progress: Progress) -> Iterator[bytes]:
    sent = 0
    with file.open("rb") as handle:
        handle.seek(offset)
        while sent < size and (block := handle.read(min(_CHUNK, size - sent))):
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


def _safe_text(error: Exception, url: str) -> str:
    """The error without the address: a presigned address is a password."""
    return str(error).replace(url, "<redacted URL>") or type(error).__name__

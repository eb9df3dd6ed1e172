"""Sending the bytes of a dataset: in one request, or in parts of which, in large files, several travel at a time."""

import math
import threading
from dataclasses import dataclass
from functools import partial
from typing import Any

import httpx

from osmosis_ai.cli.datasets.checks import CheckedFile
from osmosis_ai.cli.downloads.workers import each_in_parallel
from osmosis_ai.cli.output.messages import notice, progress
from osmosis_ai.platform.api.transfer import range_sha256, transfer_client, upload_part
from osmosis_ai.platform.errors import PlatformError, TransferError

WORKERS = 4
# Smaller files travel part by part, in order: several connections would only cost time.
_PARALLEL_FROM_BYTES = 64 * 1024 * 1024
_PART_TIMEOUT_S = 300.0
_MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of the file. ``stored`` is what the platform has of it already: its SHA-256 and ETag, else None."""

    number: int
    offset: int
    size: int
    url: str
    stored: tuple[str, str] | None


def send(checked: CheckedFile, upload: dict[str, Any]) -> list[dict[str, Any]] | None:
    """Send the bytes as the platform's plan says; the parts with their ETags, or None for a single request.

    Raises:
        PlatformError: the plan makes no sense.
        TransferError: refused, or still failing after all tries.
    """
    method = upload.get("method", "simple")
    if method == "simple" and upload.get("presigned_url"):
        url = upload["presigned_url"]
        with transfer_client(url) as client, progress("Uploading", checked.size) as show:
            upload_part(
                client,
                url,
                checked.path,
                size=checked.size,
                headers=upload.get("upload_headers"),
                progress=show,
            )
        return None
    if method == "multipart":
        return _send_parts(checked, plan_parts(checked.size, upload))
    raise PlatformError(
        f"The platform asked for an upload method that this version does not know: {method!r}."
    )


def plan_parts(file_size: int, upload: dict[str, Any]) -> list[_Part]:
    """The parts of the platform's plan, in order.

    Raises:
        PlatformError: the plan does not fit the file.
    """
    try:
        size, total = int(upload["part_size"]), int(upload["total_parts"])
        urls = {int(entry["part_number"]): str(entry["presigned_url"]) for entry in upload["presigned_urls"]}
        entries = len(upload["presigned_urls"])
        stored = {
            int(entry["part_number"]): (str(entry["sha256"]), str(entry["etag"]))
            for entry in upload.get("uploaded_parts") or []
        }
    except (KeyError, TypeError, ValueError) as error:
        raise PlatformError(f"The platform's upload plan is incomplete: {error}.") from error
    fits = size > 0 and total == math.ceil(file_size / size)
    if not fits or entries != total or sorted(urls) != list(range(1, total + 1)):
        raise PlatformError("The platform's upload plan does not cover the file; nothing was sent.")
    offsets = range(0, file_size, size)
    return [
        _Part(number, offset, min(size, file_size - offset), urls[number], stored.get(number))
        for number, offset in enumerate(offsets, start=1)
    ]


def _send_parts(checked: CheckedFile, parts: list[_Part]) -> list[dict[str, Any]]:
    stop = threading.Event()
    known = sum(part.size for part in parts if part.stored)
    if known:
        notice(f"Going on with an interrupted upload: {known // _MEBIBYTE} MB are there already.")
    with (
        transfer_client(parts[0].url, _PART_TIMEOUT_S) as client,
        progress("Uploading", checked.size) as show,
    ):
        send_part = partial(_send_part, client, checked, _Total(show), stop)
        workers = WORKERS if checked.size >= _PARALLEL_FROM_BYTES else 1
        etags = {part.number: etag for part, etag in each_in_parallel(send_part, parts, workers, stop)}
    return [{"PartNumber": part.number, "ETag": etags[part.number]} for part in parts]


def _send_part(
    client: httpx.Client, checked: CheckedFile, total: "_Total", stop: threading.Event, part: _Part
) -> str:
    """The part's ETag. A part that the platform has with the same content is not sent again."""
    if part.stored is not None:
        sha256, etag = part.stored
        if range_sha256(checked.path, part.offset, part.size, stop) == sha256:
            total.sent(part.number, part.size)
            return etag
    given = upload_part(
        client,
        part.url,
        checked.path,
        offset=part.offset,
        size=part.size,
        progress=partial(total.sent, part.number),
        stop=stop,
    )
    if not given:
        raise TransferError(f"The store gave no ETag for part {part.number}; the upload cannot be completed.")
    return given


class _Total:
    """Adds up what the parts have sent."""

    def __init__(self, show: Any) -> None:
        self._show = show
        self._by_part: dict[int, int] = {}
        self._lock = threading.Lock()

    def sent(self, part: int, size: int) -> None:
        """A part has sent so many bytes."""
        with self._lock:
            self._by_part[part] = size
            self._show(sum(self._by_part.values()))

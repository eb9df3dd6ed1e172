"""Sending one file of an import as the platform says: in one request or in parts."""

import threading
from typing import Any

from osmosis_ai.cli.datasets.sending import plan_parts
from osmosis_ai.cli.uploads.local_run import DeclaredFile
from osmosis_ai.platform.api.transfer import transfer_client, upload_part
from osmosis_ai.platform.errors import PlatformError, TransferError


def send_file(
    file: DeclaredFile, upload: dict[str, Any], stop: threading.Event
) -> list[dict[str, Any]] | None:
    """The parts with their ETags, or None after a single request.

    Raises:
        PlatformError: the plan makes no sense.
        TransferError: refused, still failing after all tries, or stopped.
    """
    method = upload.get("method")
    if method == "simple" and upload.get("presigned_url"):
        url, headers = upload["presigned_url"], upload.get("upload_headers")
        with transfer_client(url) as client:
            upload_part(client, url, file.source, size=file.size, headers=headers, stop=stop)
        return None
    if method != "multipart":
        raise PlatformError(
            f"The platform asked for an upload method that this version does not know: {method!r}."
        )
    parts: list[dict[str, Any]] = []
    plan = plan_parts(file.size, upload)
    with transfer_client(plan[0].url) as client:
        for part in plan:
            etag = upload_part(client, part.url, file.source, offset=part.offset, size=part.size, stop=stop)
            if not etag:
                raise TransferError(f"The store gave no ETag for part {part.number} of {file.path}.")
            parts.append({"part_number": part.number, "etag": etag})
    return parts

"""The data plane: signed PUT of upload parts and signed GET of blobs. No other credential is needed or looked at."""

from __future__ import annotations

import mimetypes
from base64 import b64encode
from urllib.parse import quote

from fastapi import APIRouter, Request, Response
from fastapi.responses import FileResponse
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from osmosis_platform.context import Platform
from osmosis_platform.errors import NotFound
from osmosis_platform.storage.open_uploads import wants_parts
from osmosis_platform.storage.uploads import etag_of

router = APIRouter(include_in_schema=False)


def _platform(request: Request) -> Platform:
    platform: Platform = request.app.state.platform
    return platform


@router.get("/blobs/{sha256}")
async def get_blob(sha256: str, request: Request) -> Response:
    """Serve a blob: exact bytes, never compressed, ranges supported, never rendered by a browser."""
    platform = _platform(request)
    platform.urls.check("GET", f"/blobs/{sha256}", request.query_params)
    path = platform.blobs.path(sha256)
    if not path.is_file():
        raise NotFound("this file is no longer stored")
    name = request.query_params["name"]
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    return FileResponse(
        path,
        media_type=kind if kind in {"application/json", "text/csv"} else "application/octet-stream",
        headers={
            "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name.rsplit('/', 1)[-1], safe='')}",
            "Content-Security-Policy": "sandbox; default-src 'none'",
            "X-Content-Type-Options": "nosniff",
            "Cache-Control": "private, no-store",
            "ETag": f'"{sha256}"',
            "Repr-Digest": f"sha-256=:{b64encode(bytes.fromhex(sha256)).decode()}:",  # RFC 9530
        },
    )


@router.put("/uploads/{upload_id}/{part}")
async def put_part(upload_id: str, part: int, request: Request) -> Response:
    """Take one part of an upload; the answer's ETag is given back on completion."""
    platform = _platform(request)
    platform.urls.check("PUT", f"/uploads/{upload_id}/{part}", request.query_params)
    size = int(request.query_params["size"])
    wanted = await run_in_threadpool(_wants_parts, platform, upload_id)
    try:
        if wanted:
            etag = await platform.parts.receive(upload_id, part, size, request.stream())
        else:  # sent once more after the upload was completed, or cancelled
            etag = await etag_of(part, size, request.stream())
    except ClientDisconnect:  # nothing of the part is kept, and nobody is left to be told
        return Response(status_code=400)
    await run_in_threadpool(_wants_parts, platform, upload_id)
    return Response(status_code=200, headers={"ETag": f'"{etag}"'})


def _wants_parts(platform: Platform, upload_id: str) -> bool:
    """Whether the upload still takes parts; raises NotFound, and keeps nothing, when another one took its place."""
    with platform.database.read() as session:
        wanted = wants_parts(session, upload_id)
    if wanted is None:
        platform.parts.discard(upload_id)
        raise NotFound(f"Upload {upload_id} is over; begin a new one.")
    return wanted

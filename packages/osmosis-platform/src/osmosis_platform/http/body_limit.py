"""Bodies that are read before anybody looks who sent them are small. What is large is streamed: uploads, blobs, pushes."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from osmosis_platform.errors import PlatformError
from osmosis_platform.http.errors import error_response

MAX_BODY_BYTES = 16 * 1024**2
_LIMITED = ("application/json", "application/x-www-form-urlencoded", "multipart/form-data")
_TEXT = f"The body of this request is larger than {MAX_BODY_BYTES // 1024**2} MiB."


class BodyLimit:
    """Refuses larger JSON and form bodies with 413, before or while they arrive. `/v1` has a limit of its own."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith("/v1/"):
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if not headers.get("content-type", "").lower().startswith(_LIMITED):
            await self.app(scope, receive, send)
            return
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length) > MAX_BODY_BYTES:
            error = PlatformError(_TEXT, code="BODY_TOO_LARGE", status=413)
            await error_response(Request(scope), error, {"Connection": "close"})(scope, receive, send)
            return
        received = 0

        async def counting_receive() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > MAX_BODY_BYTES:
                raise HTTPException(413, _TEXT)
            return message

        await self.app(scope, counting_receive, send)

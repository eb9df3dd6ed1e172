"""Around every request: an id, a log line, safe headers, and no text of an unexpected error in the answer."""

from __future__ import annotations

import logging
import re
import time
import uuid
from typing import cast
from urllib.parse import quote, unquote

from sqlalchemy.exc import DataError, OperationalError
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from osmosis_platform.compute.failures import is_disk_full
from osmosis_platform.errors import InvalidInput, PlatformError, Unavailable
from osmosis_platform.http.errors import error_response
from osmosis_platform.http.versions import VersionPolicy

log = logging.getLogger("osmosis_platform.http")

# Stands for an encoded slash between routing and the handler. A noncharacter: it never occurs in a name.
ENCODED_SLASH = "\ufdd0"
_ENCODED_SLASH = re.compile(rb"%2f", re.IGNORECASE)
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")

SAFE_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
}


class RequestMiddleware:
    """Outermost layer of the application."""

    def __init__(self, app: ASGIApp, versions: VersionPolicy) -> None:
        self.app = app
        self.versions = versions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        request_id = headers.get("x-request-id", "")
        if not _REQUEST_ID.fullmatch(request_id):
            request_id = uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = request_id
        keep_encoded_slashes(scope)
        signal = self.versions.judge(headers.get("x-osmosis-cli-version"))
        started = time.perf_counter()
        status = 0

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = cast(int, message["status"])
                answer = MutableHeaders(scope=message)
                answer["X-Request-Id"] = request_id
                for name, value in SAFE_HEADERS.items():
                    answer.setdefault(name, value)
                if scope["path"].startswith("/api/"):
                    answer.setdefault("Cache-Control", "no-store")
                if 200 <= status < 300:
                    signal.add_headers(answer)
            await send(message)

        try:
            if signal.refusal is not None:
                await signal.refusal(scope, receive, send_with_headers)
            else:
                await self.app(scope, receive, send_with_headers)
        except Exception as error:
            if status or not _is_odd_text(error):
                log.exception("request %s: %s %s failed", request_id, scope["method"], raw_path(scope))
            if status:
                raise
            answer = error_response(Request(scope, receive), _told(error, request_id))
            await answer(scope, receive, send_with_headers)
        finally:
            log.info(
                "%s %s %d %.1f ms request=%s",
                scope["method"],
                raw_path(scope),
                status,
                (time.perf_counter() - started) * 1000,
                request_id,
            )


def raw_path(scope: Scope) -> str:
    """The path as it was sent, for the log: percent-encoded, so that nobody can write lines of their own into it."""
    raw: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
    return raw.partition(b"?")[0].decode("ascii", "backslashreplace")


def keep_encoded_slashes(scope: Scope) -> None:
    """Decode the path for routing, except `%2F`: a name such as `org/model` is one segment of a path.

    `restore_slashes`, a dependency of every route, puts the slash into the handler's parameters.
    """
    raw: bytes = scope.get("raw_path") or b""
    raw = raw.partition(b"?")[0]
    if _ENCODED_SLASH.search(raw):
        parts = _ENCODED_SLASH.split(raw)
        scope["path"] = ENCODED_SLASH.join(unquote(part.decode("latin-1")) for part in parts)


def _is_odd_text(error: Exception) -> bool:
    """Whether a database or an answer refused text. It can only come from the request: JSON and addresses can write anything."""
    nul_for_postgres = isinstance(error, DataError) and "NUL" in str(error.orig)
    return isinstance(error, UnicodeEncodeError) or nul_for_postgres


def _told(error: Exception, request_id: str) -> PlatformError:
    """What the caller hears of an unexpected error: what can be acted on, everything else is in the log."""
    if _is_odd_text(error):
        return InvalidInput(
            r"The request holds text that cannot be kept: a NUL character, or half of a surrogate pair such as \ud800."
        )
    if is_disk_full(error):
        return PlatformError(
            "The platform's disk is full, so nothing was stored. Make room on it and try again.",
            code="DISK_FULL",
            status=507,
        )
    if isinstance(error, OperationalError):
        return Unavailable(
            "The platform's database does not answer. Try again in a moment; "
            f"if it stays so, the platform's log says why, under request id {request_id}.",
            code="DATABASE_UNAVAILABLE",
        )
    return PlatformError(
        f"Something went wrong on the platform. Its log says what, under request id {request_id}.",
        extra={"request_id": request_id},
    )

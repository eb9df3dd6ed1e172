"""The platform's one exception tree; every one of them becomes the API's error envelope."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class PlatformError(Exception):
    """Something the caller can act on.

    `status` is the HTTP status, `code` a stable machine word, `message` one sentence that says what, where and what to do.
    `issues` are config problems (`{"key", "message", "key_correction"?}`); `extra` holds further top-level keys of the body.
    """

    status = 500
    code = "INTERNAL"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        status: int | None = None,
        field: str | None = None,
        issues: Sequence[Mapping[str, str]] = (),
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or type(self).code
        self.status = status or type(self).status
        self.field = field
        self.issues = list(issues)
        self.extra = dict(extra or {})

    def body(self) -> dict[str, Any]:
        """The JSON error envelope of the public API."""
        body: dict[str, Any] = {
            **self.extra,
            "error": self.message,
            "message": self.message,
            "code": self.code,
        }
        if self.field is not None:
            body["field"] = self.field
        if self.issues:
            body["issues"] = self.issues
        return body


class InvalidInput(PlatformError):
    """The request says something that cannot be (400)."""

    status, code = 400, "VALIDATION"


class Unauthenticated(PlatformError):
    """No valid credential (401)."""

    status, code = 401, "TOKEN_INVALID"


class Forbidden(PlatformError):
    """A known person without the needed role (403)."""

    status, code = 403, "FORBIDDEN"


class NotFound(PlatformError):
    """No such thing, or none that the caller may know of (404)."""

    status, code = 404, "NOT_FOUND"


class Conflict(PlatformError):
    """The state of the thing does not allow it (409)."""

    status, code = 409, "CONFLICT"


class RateLimited(PlatformError):
    """Too many tries (429); `wait_seconds` until the next one may succeed, also told in the `Retry-After` header."""

    status, code = 429, "RATE_LIMITED"

    def __init__(self, wait_seconds: int) -> None:
        super().__init__(f"Too many tries. Wait {wait_seconds} seconds and try again.")
        self.wait_seconds = wait_seconds


class Unavailable(PlatformError):
    """A part of the platform is not there right now (503)."""

    status, code = 503, "UNAVAILABLE"


class CannotStart(PlatformError):
    """The platform process cannot start or a command cannot open its data; never sent over HTTP."""

    code = "CANNOT_START"

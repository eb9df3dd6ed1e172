"""What the inference endpoint takes and how it refuses, for the API's description: the shapes of OpenAI's clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi.responses import JSONResponse
from pydantic import BaseModel

from osmosis_platform.errors import PlatformError, RateLimited

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "invalid_request_error",
    429: "rate_limit_error",
}
# The platform's codes in the words that clients of this endpoint know.
_CODES = {
    "VALIDATION": "invalid_request",
    "AUTH_HEADER_MISSING": "invalid_api_key",
    "TOKEN_MISSING": "invalid_api_key",
    "RATE_LIMITED": "rate_limit_exceeded",
    "UNAVAILABLE": "model_unavailable",
}


class ErrorDetail(BaseModel):
    """What went wrong; `param` is the part of the request that is wrong."""

    message: str
    type: str
    param: str | None
    code: str


class ErrorObject(BaseModel):
    """An error of the inference endpoint."""

    error: ErrorDetail


def error_object(error: PlatformError, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """An error as OpenAI's clients read it."""
    kind = _TYPES.get(error.status, "server_error" if error.status >= 500 else "invalid_request_error")
    code = _CODES.get(error.code, error.code.lower())
    answer = JSONResponse(
        {"error": {"message": error.message, "type": kind, "param": error.field, "code": code}},
        status_code=error.status,
    )
    if error.status in (429, 503):
        answer.headers["Retry-After"] = str(error.wait_seconds if isinstance(error, RateLimited) else 5)
    answer.headers.update(headers or {})
    return answer


CHAT_REQUEST: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["model", "messages"],
                    "properties": {
                        "model": {"type": "string", "description": "One of GET /v1/models."},
                        "messages": {"type": "array", "items": {"type": "object"}},
                        "tools": {"type": "array", "items": {"type": "object"}},
                        "stream": {"type": "boolean"},
                    },
                }
            }
        },
    }
}

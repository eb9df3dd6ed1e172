"""Every failure of a request leaves as the one error envelope of the API."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from fastapi.routing import iter_route_contexts
from starlette.exceptions import HTTPException

from osmosis_platform.errors import InvalidInput, PlatformError, RateLimited
from osmosis_platform.inference.wire import error_object
from osmosis_platform.web.errors import error_page


def install_error_handlers(app: FastAPI) -> None:
    """Answer platform errors, invalid requests and unknown routes with `{"error", "message", "code", ...}`."""
    app.add_exception_handler(PlatformError, _platform_error)
    app.add_exception_handler(RequestValidationError, _invalid_request)
    app.add_exception_handler(HTTPException, _http_error)


def error_response(request: Request, error: PlatformError, headers: dict[str, str] | None = None) -> Response:
    """The page for a browser that shows pages, else the envelope. `/v1` answers as OpenAI does, and the API never with a page."""
    path = request.scope["path"]
    if path.startswith("/v1/"):
        return error_object(error, headers)
    if not path.startswith("/api/"):
        page = error_page(request, error)
        if page is not None:
            return page
    return JSONResponse(error.body(), status_code=error.status, headers=headers)


async def _platform_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, PlatformError)
    headers = {"Retry-After": str(error.wait_seconds)} if isinstance(error, RateLimited) else None
    return error_response(request, error, headers)


async def _invalid_request(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return error_response(request, invalid_input(error.errors()))


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = HTTPStatus(error.status_code).name if error.status_code in set(HTTPStatus) else "HTTP_ERROR"
    if error.status_code == HTTPStatus.NOT_FOUND:
        text = f"There is nothing at {request.method} {request.scope['path']}."
    elif error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        text = f"{request.method} is not possible at {request.scope['path']}."
    else:
        text = str(error.detail)
    failure = PlatformError(text, code=code, status=error.status_code)
    headers = dict(error.headers or {})
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = ", ".join(sorted(_methods_at(request)))
    return error_response(request, failure, headers)


def _methods_at(request: Request) -> set[str]:
    """Every method of this path: several routes may share it, and the one that refused knows only its own."""
    path = request.scope["path"]
    found: set[str] = set()
    for route in iter_route_contexts(request.app.routes):
        pattern = getattr(route, "path_regex", None)
        if pattern is not None and pattern.match(path):
            found |= set(route.methods or ())
    return found


def invalid_input(problems: Sequence[Any]) -> InvalidInput:
    """Turn pydantic's problems into our error. Input values are left out: one of them may be a secret."""
    found = [{"key": _key(problem["loc"]), "message": _sentence(problem)} for problem in problems]
    first = found[0]
    text = f"{first['key']}: {first['message']}" if first["key"] else first["message"]
    if len(found) > 1:
        text += f" (and {len(found) - 1} more)"
    return InvalidInput(text, field=first["key"] or None, issues=found if len(found) > 1 else ())


def _key(location: Sequence[str | int]) -> str:
    parts = list(location)
    if parts and parts[0] in ("body", "query", "path", "header", "cookie"):
        parts = parts[1:]
    return ".".join(str(part) for part in parts)


def _sentence(problem: Any) -> str:
    if problem["loc"] == ("body",) and problem["type"] in ("missing", "model_attributes_type"):
        return "The body has to be a JSON object, sent as application/json."
    message: str = problem["msg"]
    return message.removeprefix("Value error, ")

"""Errors as pages, for browsers."""

from __future__ import annotations

from http import HTTPStatus

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from osmosis_platform.errors import PlatformError
from osmosis_platform.web.pages import fragment, wants_json


def error_page(request: Request, error: PlatformError) -> Response | None:
    """A page that says what is wrong, or the way to sign in; None for callers that are no browser."""
    if "text/html" not in request.headers.get("accept", "") or wants_json(request):
        return None
    target = getattr(error, "target", None)
    if isinstance(target, str):
        return RedirectResponse(target, status_code=303)
    title = HTTPStatus(error.status).phrase if error.status in set(HTTPStatus) else "Error"
    html = fragment("error.html", title=title, error=error.message)
    return HTMLResponse(html, status_code=error.status, headers={"Cache-Control": "no-store"})

"""Errors as pages, for browsers."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from osmosis_platform.errors import PlatformError
from osmosis_platform.web.pages import fragment, wants_json


def error_page(request: Request, error: PlatformError) -> Response | None:
    """A page that says what is wrong, or the way to sign in; None for callers that are no browser."""
    if "text/html" not in request.headers.get("accept", "") or wants_json(request):
        return None
    target = getattr(error, "target", None)
    if getattr(error, "kept", ""):
        return _sign_in_with_form(request, error)
    if isinstance(target, str):
        return RedirectResponse(target, status_code=303)
    title = HTTPStatus(error.status).phrase if error.status in set(HTTPStatus) else "Error"
    html = fragment("error.html", title=title, error=error.message)
    return HTMLResponse(html, status_code=error.status, headers={"Cache-Control": "no-store"})


def _sign_in_with_form(request: Request, error: Any) -> Response:
    """The sign-in page in place of the one that was asked for, with the form that was sent."""
    github = request.app.state.platform.settings.signs_in_with_github
    shown = {"error": None, "email": "", "next": error.next, "github": github, "kept": error.kept}
    html = fragment("sign_in.html", **shown)
    return HTMLResponse(html, status_code=error.status, headers={"Cache-Control": "no-store"})

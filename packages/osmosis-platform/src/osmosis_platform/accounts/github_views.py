"""To GitHub and back."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from osmosis_platform.accounts import github, sessions
from osmosis_platform.accounts.views import enter, safe_target, sign_in_data
from osmosis_platform.audit.service import record
from osmosis_platform.context import Platform
from osmosis_platform.errors import NotFound, PlatformError
from osmosis_platform.http.scope import PlatformDep, client_address
from osmosis_platform.web.pages import render

router = APIRouter(include_in_schema=False)


@router.get("/sign-in/github")
def to_github(platform: PlatformDep, next: str = "/") -> Response:
    """Send the browser to GitHub."""
    _check_configured(platform)
    begun = github.begin(platform.settings, platform.keys, safe_target(next))
    response = RedirectResponse(begun.address, status_code=303)
    response.set_cookie(
        github.COOKIE,
        begun.cookie,
        max_age=github.SECONDS,
        path="/sign-in",
        httponly=True,
        samesite="lax",
        secure=platform.settings.resolved_public_url.startswith("https://"),
    )
    return response


@router.get(github.CALLBACK)
def from_github(
    request: Request, platform: PlatformDep, code: str = "", state: str = "", error: str = ""
) -> Response:
    """Start a session of whoever GitHub says it is; one that the browser already had ends."""
    _check_configured(platform)
    try:
        platform.limits.sign_in.check(f"address:{client_address(request)}")
        kept = github.read_cookie(platform.keys, request.cookies.get(github.COOKIE, ""), state)
        email = github.email_of(platform.settings, code, kept["verifier"])
        with platform.database.write() as session:
            user = github.user_of(session, email)
            sessions.sign_out(session, request.cookies.get(sessions.COOKIE, ""))
            signed = sessions.start_session(
                session, user, platform.settings.session_days, request.headers.get("user-agent")
            )
            record(session, "user.sign_in", user.email, user_id=user.id, by="github")
    except PlatformError as problem:
        text = "The sign-in was cancelled at GitHub." if error else problem.message
        response = render(
            request, "sign_in.html", sign_in_data(platform, text, "", "/"), status=problem.status
        )
    else:
        platform.limits.sign_in.forget(f"address:{client_address(request)}")
        response = enter(platform, signed, kept["target"])
    response.delete_cookie(github.COOKIE, path="/sign-in")
    return response


def _check_configured(platform: Platform) -> None:
    if not platform.settings.signs_in_with_github:
        raise NotFound("This platform does not sign in with GitHub.")

"""The page behind an invitation's link: join with the account you have, or with a new one."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Form, Request, Response
from fastapi.responses import RedirectResponse
from sqlalchemy import select

from osmosis_platform.accounts import sessions
from osmosis_platform.accounts.models import User
from osmosis_platform.accounts.views import enter, refuse_foreign_origin
from osmosis_platform.errors import PlatformError
from osmosis_platform.http.scope import PlatformDep
from osmosis_platform.web.pages import render
from osmosis_platform.web.viewer import SignedIn, VisitorDep
from osmosis_platform.workspaces import invites
from osmosis_platform.workspaces.service import membership_of

router = APIRouter(include_in_schema=False)


@router.get("/invite")
def invite_page(request: Request, platform: PlatformDep, person: VisitorDep, token: str = "") -> Response:
    """Who invites to what, and the form that fits the visitor."""
    return _page(request, platform, person, token)


@router.post("/invite")
def join(
    request: Request,
    platform: PlatformDep,
    person: VisitorDep,
    token: Annotated[str, Form()] = "",
    csrf: Annotated[str, Form()] = "",
    name: Annotated[str, Form()] = "",
    email: Annotated[str, Form()] = "",
    password: Annotated[str, Form()] = "",
) -> Response:
    """Let the visitor in: the person who is signed in, else a new account."""
    try:
        if person is not None:
            sessions.check_csrf(person.session, csrf)
            with platform.database.write() as session:
                workspace = invites.accept_invite(session, token, person.user)
            return RedirectResponse(f"/{workspace}", status_code=303)
        refuse_foreign_origin(request)
        with platform.database.write() as session:
            user, workspace = invites.join_with_new_account(
                session, token, email=email, name=name, password=password
            )
            signed = sessions.start_session(
                session, user, platform.settings.session_days, request.headers.get("user-agent")
            )
    except PlatformError as problem:
        if problem.code in ("INVITE_INVALID", "CSRF", "FOREIGN_ORIGIN"):
            raise
        typed = {"name": name, "email": email}
        return _page(
            request, platform, person, token, error=problem.message, status=problem.status, typed=typed
        )
    return enter(platform, signed, f"/{workspace}")


def _page(
    request: Request,
    platform: PlatformDep,
    person: SignedIn | None,
    token: str,
    *,
    error: str | None = None,
    status: int = 200,
    typed: dict[str, str] | None = None,
) -> Response:
    with platform.database.read() as session:
        invite = invites.find_invite(session, token)
        known = session.scalar(select(User.id).where(User.email == invite.email)) is not None
        inside = (
            person is not None and membership_of(session, invite.workspace_id, person.user.id) is not None
        )
    data: dict[str, Any] = {
        "workspace": invite.workspace.name,
        "role": invite.role,
        "email": invite.email,
        "invited_by": invite.creator.name,
        "expires_at": invite.expires_at.isoformat(),
        "error": error,
    }
    chrome = {
        "person": person.user if person else None,
        "csrf": person.session.csrf_token if person else "",
        "inside": inside,
        "known": known,
        "token": token,
        "typed": typed or {"name": "", "email": ""},
    }
    return render(request, "invite.html", data, status=status, **chrome)

"""A person's own account: password and signed-in browsers."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Form, Request, Response
from fastapi.responses import RedirectResponse

from osmosis_platform.accounts import service, sessions
from osmosis_platform.accounts.agents import browser_name
from osmosis_platform.accounts.models import BrowserSession, User
from osmosis_platform.accounts.views import enter
from osmosis_platform.audit.service import record
from osmosis_platform.errors import InvalidInput, NotFound, PlatformError, Unauthenticated
from osmosis_platform.http.scope import PlatformDep
from osmosis_platform.web.pages import render
from osmosis_platform.web.viewer import Csrf, SignedIn, SignedInDep
from osmosis_platform.workspaces.service import workspaces_of

router = APIRouter(include_in_schema=False)
PATH = "/account"


@router.get(PATH)
def account_page(request: Request, platform: PlatformDep, person: SignedInDep) -> Response:
    """Who the person is here, and where they are signed in."""
    return _page(request, platform, person)


@router.post(PATH + "/password", dependencies=[Csrf])
def change_password(
    request: Request,
    platform: PlatformDep,
    person: SignedInDep,
    current: Annotated[str, Form()] = "",
    new: Annotated[str, Form()] = "",
    again: Annotated[str, Form()] = "",
) -> Response:
    """Replace the password. Every other browser is signed out, and this one goes on with a fresh session."""
    key = f"password:{person.user.id}"
    try:
        if new != again:
            raise InvalidInput("The new password and its repetition differ.", field="again")
        platform.limits.sign_in.check(key)
        with platform.database.read() as session:
            service.check_password(session, person.user.email, current)
        with platform.database.write() as session:
            user = session.get_one(User, person.user.id)
            service.set_password(user, new)
            sessions.sign_out_everywhere(session, user.id)
            signed = sessions.start_session(
                session, user, platform.settings.session_days, request.headers.get("user-agent")
            )
            record(session, "user.password", user.email, user_id=user.id)
    except Unauthenticated:
        wrong = InvalidInput("The current password is wrong.", field="current")
        return _page(request, platform, person, error=wrong)
    except PlatformError as problem:
        return _page(request, platform, person, error=problem)
    platform.limits.sign_in.forget(key)
    return enter(platform, signed, f"{PATH}?changed=1")


@router.post(PATH + "/name", dependencies=[Csrf])
def change_name(
    request: Request, platform: PlatformDep, person: SignedInDep, name: Annotated[str, Form()] = ""
) -> Response:
    """Change the name that others see."""
    try:
        with platform.database.write() as session:
            service.set_name(session.get_one(User, person.user.id), name)
    except InvalidInput as problem:
        return _page(request, platform, person, error=problem)
    return RedirectResponse(PATH, status_code=303)


@router.post(PATH + "/sessions/end", dependencies=[Csrf])
def end_others(platform: PlatformDep, person: SignedInDep) -> Response:
    """Sign every other browser out."""
    with platform.database.write() as session:
        sessions.sign_out_everywhere(session, person.user.id, keep=person.session.id)
    return RedirectResponse(PATH, status_code=303)


@router.post(PATH + "/sessions/{session_id}/end", dependencies=[Csrf])
def end_session(platform: PlatformDep, person: SignedInDep, session_id: str) -> Response:
    """Sign one browser out; the person's own leads to the sign-in page."""
    with platform.database.write() as session:
        found = session.get(BrowserSession, session_id)
        if found is None or found.user_id != person.user.id:
            raise NotFound(f"You have no session with the id {session_id}.", code="SESSION_NOT_FOUND")
        session.delete(found)
    return RedirectResponse(PATH, status_code=303)


def _page(
    request: Request, platform: PlatformDep, person: SignedIn, *, error: PlatformError | None = None
) -> Response:
    with platform.database.read() as session:
        found = sessions.sessions_of(session, person.user.id)
        mine = [item.workspace.name for item in workspaces_of(session, person.user.id)]
    data: dict[str, Any] = {
        "name": person.user.name,
        "email": person.user.email,
        "sessions": [
            {
                "id": item.id,
                "created_at": item.created_at.isoformat(),
                "expires_at": item.expires_at.isoformat(),
                "agent": item.agent,
                "browser": browser_name(item.agent),
                "current": item.id == person.session.id,
            }
            for item in found
        ],
        "error": error.message if error else None,
    }
    chrome = {
        "person": person.user,
        "csrf": person.session.csrf_token,
        "workspaces": mine,
        "page": "account",
        "changed": request.query_params.get("changed") == "1",
        "has_password": person.user.password_hash is not None,
    }
    return render(request, "account.html", data, status=error.status if error else 200, **chrome)

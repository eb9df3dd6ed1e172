"""The page of a person's own tokens, in whatever workspaces they are."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Form, Request, Response
from fastapi.responses import RedirectResponse

from osmosis_platform.accounts import tokens
from osmosis_platform.accounts.models import AccessToken
from osmosis_platform.errors import InvalidInput
from osmosis_platform.http.scope import PlatformDep
from osmosis_platform.web.pages import render
from osmosis_platform.web.viewer import Csrf, SignedIn, SignedInDep
from osmosis_platform.workspaces.service import workspaces_of

router = APIRouter(include_in_schema=False)

PATH = "/account/tokens"
LIFETIMES = (("30", "30 days"), ("90", "90 days"), ("365", "a year"), ("", "without end"))
KINDS = {"personal": "personal", "device": "login of a command line"}


@router.get(PATH)
def tokens_page(request: Request, platform: PlatformDep, person: SignedInDep) -> Response:
    """Tokens that work, newest first; their text is never shown again."""
    return _page(request, platform, person)


@router.post(PATH, dependencies=[Csrf])
def create_token(
    request: Request,
    platform: PlatformDep,
    person: SignedInDep,
    name: Annotated[str, Form()] = "",
    days: Annotated[str, Form()] = "",
) -> Response:
    """Create a token; the answer is the only place that has its text."""
    try:
        lifetime = _days(days)
        with platform.database.write() as session:
            token, text = tokens.create_personal_token(session, person.user.id, name, lifetime)
    except InvalidInput as problem:
        return _page(request, platform, person, error=problem.message, name=name, status=problem.status)
    created = {"id": token.id, "name": token.name, "token": text}
    return _page(request, platform, person, created=created, status=201)


@router.post(PATH + "/{token_id}/revoke", dependencies=[Csrf])
def revoke_token(platform: PlatformDep, person: SignedInDep, token_id: str) -> Response:
    """End a token at once."""
    with platform.database.write() as session:
        tokens.revoke_token(session, person.user.id, token_id)
    return RedirectResponse(PATH, status_code=303)


def _days(text: str) -> int | None:
    if not text.strip():
        return None
    if not text.strip().isascii() or not text.strip().isdigit():
        raise InvalidInput("The lifetime of a token is a whole number of days.", field="days")
    return int(text[:10])


def _page(
    request: Request,
    platform: PlatformDep,
    person: SignedIn,
    *,
    created: dict[str, str] | None = None,
    error: str | None = None,
    name: str = "",
    status: int = 200,
) -> Response:
    with platform.database.read() as session:
        found = [_row(token) for token in tokens.list_tokens(session, person.user.id)]
        mine = [item.workspace.name for item in workspaces_of(session, person.user.id)]
    data = {"tokens": found, "created": created, "error": error}
    chrome = {"person": person.user, "csrf": person.session.csrf_token, "workspaces": mine, "page": "tokens"}
    return render(request, "tokens.html", data, status=status, name=name, lifetimes=LIFETIMES, **chrome)


def _row(token: AccessToken) -> dict[str, Any]:
    return {
        "id": token.id,
        "name": token.name,
        "kind": KINDS[token.kind],
        "hint": token.hint,
        "created_at": token.created_at.isoformat(),
        "expires_at": token.expires_at.isoformat() if token.expires_at else None,
        "last_used_at": token.last_used_at.isoformat() if token.last_used_at else None,
    }

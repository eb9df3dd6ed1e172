"""`/api/cli/device/*`, `/api/cli/verify` and `/api/cli/tokens`: how the CLI signs in, asks who it is, and signs out."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from osmosis_platform.accounts import device
from osmosis_platform.accounts.models import AccessToken, User
from osmosis_platform.accounts.tokens import revoke_token
from osmosis_platform.http.scope import CurrentUser, PlatformDep, client_address
from osmosis_platform.workspaces.scope import find_by_repository

NEVER = datetime(2999, 12, 31, tzinfo=UTC)

router = APIRouter(prefix="/api/cli", tags=["accounts"])


class StartDeviceLogin(BaseModel):
    """The machine that signs in."""

    device_name: Annotated[str, Field(alias="deviceName", max_length=1000)] = ""


class PollDeviceLogin(BaseModel):
    """The code that `device/authorize` gave."""

    device_code: Annotated[str, Field(max_length=1000)]


@router.post("/device/authorize")
def start_device_login(body: StartDeviceLogin, platform: PlatformDep, request: Request) -> dict[str, Any]:
    """Begin a login that a person approves in the browser."""
    platform.limits.device_start.check(client_address(request))
    with platform.database.write() as session:
        started = device.start(session, body.device_name)
    page = f"{platform.settings.resolved_public_url}/device"
    return {
        "device_code": started.device_code,
        "user_code": started.user_code,
        "verification_uri": page,
        "verification_uri_complete": f"{page}?code={quote(started.user_code)}",
        "expires_in": device.CODE_MINUTES * 60,
        "interval": device.INTERVAL_SECONDS,
    }


@router.post("/device/token")
def poll_device_login(body: PollDeviceLogin, platform: PlatformDep, request: Request) -> dict[str, Any]:
    """The token once the login is approved; until then 400 with `authorization_pending`."""
    with platform.database.read() as session:
        known = device.exists(session, body.device_code)
    if not known:
        platform.limits.device_guess.check(client_address(request))
    with platform.database.write() as session:
        outcome = device.poll(session, body.device_code)
    if isinstance(outcome, device.NoToken):
        raise outcome
    return {"token": outcome.text, **token_body(outcome.token, outcome.user)}


@router.get("/verify")
def verify(caller: CurrentUser, platform: PlatformDep, request: Request) -> dict[str, Any]:
    """Who the token belongs to, and the workspace of `X-Osmosis-Git`: null when it is unknown or not the caller's."""
    body = token_body(caller.token, caller.user)
    body["workspace"] = None
    identity = request.headers.get("x-osmosis-git")
    if identity:
        with platform.database.read() as session:
            membership = find_by_repository(session, caller.user.id, identity)
        if membership is not None:
            workspace = membership.workspace
            body["workspace"] = {"id": workspace.id, "name": workspace.name, "role": membership.role}
    return body


@router.delete("/tokens/{token_id}", status_code=204)
def delete_token(token_id: str, caller: CurrentUser, platform: PlatformDep) -> Response:
    """Revoke one of the caller's tokens, usually the one that asks."""
    with platform.database.write() as session:
        revoke_token(session, caller.user.id, token_id)
    return Response(status_code=204)


def token_body(token: AccessToken, user: User) -> dict[str, Any]:
    """What a client keeps beside the token itself."""
    return {
        "token_id": token.id,
        # Clients take a missing date for 90 days, so a token without end names a day that nobody will see.
        "expires_at": (token.expires_at or NEVER).isoformat(),
        "user": {"id": user.id, "email": user.email, "name": user.name},
    }

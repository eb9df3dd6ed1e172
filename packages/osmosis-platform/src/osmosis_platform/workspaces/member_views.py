"""The page of members: who is in, with which role, and who is invited."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Form, Request, Response
from fastapi.responses import RedirectResponse
from sqlalchemy.orm import Session

from osmosis_platform.accounts.models import User
from osmosis_platform.errors import Conflict, InvalidInput
from osmosis_platform.http.scope import PlatformDep
from osmosis_platform.web.pages import render
from osmosis_platform.web.viewer import Csrf, Viewer, ViewerDep
from osmosis_platform.workspaces import invites, service
from osmosis_platform.workspaces.models import ROLES, Invite, Membership
from osmosis_platform.workspaces.scope import by_name

router = APIRouter(include_in_schema=False)
PATH = "/{workspace}/settings/members"


@router.get(PATH)
def members_page(request: Request, platform: PlatformDep, viewer: ViewerDep) -> Response:
    """Members, and for those who may invite, invitations that are open."""
    return _page(request, platform, viewer)


@router.post(PATH + "/invites", dependencies=[Csrf])
def create_invite(
    request: Request,
    platform: PlatformDep,
    viewer: ViewerDep,
    email: Annotated[str, Form()] = "",
    role: Annotated[str, Form()] = "member",
) -> Response:
    """Make an invitation; the answer is the only place that has its link."""
    try:
        with platform.database.write() as session:
            invite, text = invites.create_invite(session, _mine(session, viewer), email, role)
    except (InvalidInput, Conflict) as problem:
        return _page(
            request, platform, viewer, error=problem.message, email=email, role=role, status=problem.status
        )
    link = f"{platform.settings.resolved_public_url}/invite?token={text}"
    created = {"id": invite.id, "for": invite.email or invites.ANYBODY, "role": invite.role, "link": link}
    return _page(request, platform, viewer, created=created, status=201)


@router.post(PATH + "/invites/{invite_id}/withdraw", dependencies=[Csrf])
def withdraw_invite(platform: PlatformDep, viewer: ViewerDep, invite_id: str) -> Response:
    """End an invitation."""
    with platform.database.write() as session:
        invites.withdraw_invite(session, _mine(session, viewer), invite_id)
    return _back(viewer)


@router.post(PATH + "/{user_id}/role", dependencies=[Csrf])
def change_role(
    request: Request, platform: PlatformDep, viewer: ViewerDep, user_id: str, role: Annotated[str, Form()]
) -> Response:
    """Give a member another role."""
    try:
        with platform.database.write() as session:
            service.set_role(session, viewer.workspace_id, user_id, role, by=_mine(session, viewer))
    except (InvalidInput, Conflict) as problem:
        return _page(request, platform, viewer, error=problem.message, status=problem.status)
    return _back(viewer)


@router.post(PATH + "/{user_id}/remove", dependencies=[Csrf])
def remove_member(request: Request, platform: PlatformDep, viewer: ViewerDep, user_id: str) -> Response:
    """Take a member out, or leave."""
    try:
        with platform.database.write() as session:
            service.remove_member(session, viewer.workspace_id, user_id, by=_mine(session, viewer))
    except Conflict as problem:
        return _page(request, platform, viewer, error=problem.message, status=problem.status)
    return _back(viewer) if user_id != viewer.user.id else RedirectResponse("/", status_code=303)


def _mine(session: Session, viewer: Viewer) -> Membership:
    """The person's membership in this transaction: their role may have changed since the page was made."""
    return by_name(session, viewer.user.id, viewer.workspace)


def _back(viewer: Viewer) -> Response:
    return RedirectResponse(f"/{viewer.workspace}/settings/members", status_code=303)


def _page(
    request: Request,
    platform: PlatformDep,
    viewer: Viewer,
    *,
    created: dict[str, str] | None = None,
    error: str | None = None,
    email: str = "",
    role: str = "member",
    status: int = 200,
) -> Response:
    with platform.database.read() as session:
        members = [_member(*found) for found in service.members_of(session, viewer.workspace_id)]
        pending = invites.pending_invites(session, viewer.workspace_id) if viewer.may("admin") else []
        data = {
            "members": members,
            "invites": [_invite(invite) for invite in pending],
            "created": created,
            "error": error,
        }
    # Roles that the person may give and take: their own and those below.
    roles = [name for name in reversed(ROLES) if viewer.may("admin") and viewer.may(name)]
    chrome: dict[str, Any] = {"roles": roles, "email": email, "role": role, "days": invites.DAYS}
    return render(request, "members.html", data, status=status, viewer=viewer, room="settings", **chrome)


def _member(user: User, membership: Membership) -> dict[str, Any]:
    return {
        "id": user.id,
        "name": user.name,
        "email": user.email,
        "role": membership.role,
        "joined_at": membership.created_at.isoformat(),
    }


def _invite(invite: Invite) -> dict[str, Any]:
    return {
        "id": invite.id,
        "email": invite.email,
        "role": invite.role,
        "creator_name": invite.creator.name,
        "expires_at": invite.expires_at.isoformat(),
    }

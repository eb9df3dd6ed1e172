"""Invitations: a link that lets one person into a workspace, once, within a week. No mail is sent; whoever made the link passes it on."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import select
from sqlalchemy.orm import Session, joinedload

from osmosis_platform.accounts.models import User
from osmosis_platform.accounts.service import create_user, normalise_email
from osmosis_platform.accounts.tokens import hash_token, new_token
from osmosis_platform.audit.service import record
from osmosis_platform.db.types import utc_now
from osmosis_platform.errors import Conflict, Forbidden, InvalidInput, NotFound
from osmosis_platform.workspaces.models import Invite, Membership
from osmosis_platform.workspaces.service import check_may_manage, membership_of

PREFIX = "osi_"
DAYS = 7
ANYBODY = "whoever has the link"


def create_invite(session: Session, by: Membership, email: str, role: str) -> tuple[Invite, str]:
    """A new invitation and the text of its link, which is never seen again.

    An empty `email` makes a link for anybody; an earlier invitation of the same address ends. Raises InvalidInput, Forbidden for a
    role above the caller's own, Conflict for a member.
    """
    check_may_manage(role, by)
    address = normalise_email(email) if email.strip() else None
    if address is not None:
        user = session.scalar(select(User).where(User.email == address))
        if user is not None and membership_of(session, by.workspace_id, user.id) is not None:
            raise Conflict(f"{address} is a member already.", code="MEMBER_EXISTS", field="email")
        for earlier in pending_invites(session, by.workspace_id):
            if earlier.email == address:
                check_may_manage(earlier.role, by)
                earlier.ended_at = utc_now()
    text = new_token(PREFIX)
    invite = Invite(
        workspace_id=by.workspace_id,
        creator_id=by.user_id,
        email=address,
        role=role,
        token_hash=hash_token(text),
        expires_at=utc_now() + timedelta(days=DAYS),
    )
    session.add(invite)
    session.flush()
    _record(session, "invite.create", invite, by.user_id)
    return invite, text


def pending_invites(session: Session, workspace_id: str) -> list[Invite]:
    """Invitations that still open the door, newest first, with their creators."""
    query = (
        select(Invite)
        .options(joinedload(Invite.creator))
        .where(Invite.workspace_id == workspace_id, Invite.ended_at.is_(None), Invite.expires_at > utc_now())
        .order_by(Invite.created_at.desc(), Invite.id)
    )
    return list(session.scalars(query))


def withdraw_invite(session: Session, by: Membership, invite_id: str) -> None:
    """End an invitation; ending it twice is fine. Raises NotFound, or Forbidden when it gives a role above the caller's own."""
    invite = session.get(Invite, invite_id)
    if invite is None or invite.workspace_id != by.workspace_id:
        raise NotFound(f"There is no invitation with the id {invite_id}.", code="INVITE_NOT_FOUND")
    check_may_manage(invite.role, by)
    if invite.ended_at is None:
        invite.ended_at = utc_now()
        _record(session, "invite.withdraw", invite, by.user_id)


def find_invite(session: Session, text: str) -> Invite:
    """The invitation of a link, with its workspace and creator; raises NotFound in the same words for all that no longer count."""
    invite = session.scalar(
        select(Invite)
        .options(joinedload(Invite.workspace), joinedload(Invite.creator))
        .where(
            Invite.token_hash == hash_token(text), Invite.ended_at.is_(None), Invite.expires_at > utc_now()
        )
        .with_for_update(of=Invite)
    )
    if invite is None:
        raise NotFound(
            "This invitation was used or withdrawn, or it is older than a week. Ask for a new one.",
            code="INVITE_INVALID",
        )
    return invite


def accept_invite(session: Session, text: str, user: User) -> str:
    """Let the person in; returns the workspace's name.

    Raises NotFound, Forbidden for an invitation of another address, Conflict for a member.
    """
    invite = find_invite(session, text)
    if invite.email not in (None, user.email):
        raise Forbidden(
            f"This invitation is for {invite.email}; you are signed in as {user.email}.",
            code="INVITE_OF_ANOTHER",
        )
    workspace = invite.workspace
    if membership_of(session, workspace.id, user.id) is not None:
        raise Conflict(f"You are a member of {workspace.name} already.", code="MEMBER_EXISTS")
    session.add(Membership(workspace_id=workspace.id, user_id=user.id, role=invite.role))
    invite.ended_at = utc_now()
    record(
        session,
        "member.join",
        user.email,
        user_id=user.id,
        workspace_id=workspace.id,
        role=invite.role,
        invited_by=invite.creator.email,
    )
    return workspace.name


def join_with_new_account(
    session: Session, text: str, *, email: str, name: str, password: str
) -> tuple[User, str]:
    """Create the account and let it in; returns it and the workspace's name. Raises what `create_user` and `accept_invite` raise."""
    invite = find_invite(session, text)
    if not email.strip() and invite.email is None:
        raise InvalidInput("Enter your e-mail address.", field="email")
    user = create_user(session, email=invite.email or email, name=name, password=password)
    record(session, "user.create", user.email, user_id=user.id)
    return user, accept_invite(session, text, user)


def _record(session: Session, action: str, invite: Invite, user_id: str) -> None:
    record(
        session,
        action,
        invite.email or ANYBODY,
        user_id=user_id,
        workspace_id=invite.workspace_id,
        role=invite.role,
    )

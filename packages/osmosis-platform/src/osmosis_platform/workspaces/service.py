"""Rules of workspaces: names, members, roles. Whether the caller may is checked by whoever has the caller's scope."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from zoneinfo import available_timezones

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session, joinedload

from osmosis_platform.accounts.models import User
from osmosis_platform.audit.models import AuditEvent
from osmosis_platform.audit.service import record
from osmosis_platform.db.types import utc_now
from osmosis_platform.errors import Conflict, Forbidden, InvalidInput, NotFound
from osmosis_platform.repositories.models import Repository
from osmosis_platform.workspaces.models import ROLES, Invite, Membership, Workspace

MAX_NAME = 63
_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")
# A workspace's pages lie at /<name>/...: these words are pages of the platform itself.
RESERVED = frozenset(
    [
        "account",
        "admin",
        "api",
        "assets",
        "blobs",
        "dev-servers",
        "device",
        "docs",
        "git",
        "health",
        "invite",
        "login",
        "logout",
        "metrics",
        "new",
        "openapi",
        "sign-in",
        "sign-out",
        "sign-up",
        "signin",
        "signout",
        "signup",
        "static",
        "uploads",
        "v1",
        "verify",
        "webhooks",
        "workspaces",
    ]
)
_QUICKSTART = "quickstart.complete"


def create_workspace(session: Session, name: str, owner: User) -> Workspace:
    """A new workspace with its first owner. Raises InvalidInput or Conflict."""
    _check_name(session, name)
    workspace = Workspace(name=name)
    session.add(workspace)
    session.flush()
    session.add(Membership(workspace_id=workspace.id, user_id=owner.id, role="owner"))
    session.flush()
    record(session, "workspace.create", name, user_id=owner.id, workspace_id=workspace.id)
    return workspace


def change_workspace(session: Session, workspace: Workspace, name: str, timezone: str, *, by: User) -> None:
    """Give the workspace another name or time zone (of the IANA database). Raises InvalidInput or Conflict.

    The name is the address of its pages and what `--workspace` names; the address of its repository stays as it is.
    """
    who = {"user_id": by.id, "workspace_id": workspace.id}
    if timezone != workspace.timezone:
        if timezone not in time_zones():
            raise InvalidInput(
                "A time zone is a name such as UTC or Europe/Berlin. Choose one of the list.",
                field="timezone",
            )
        record(
            session, "workspace.timezone", workspace.name, before=workspace.timezone, after=timezone, **who
        )
        workspace.timezone = timezone
    if name != workspace.name:
        _check_name(session, name)
        record(session, "workspace.rename", name, before=workspace.name, after=name, **who)
        workspace.name = name


@cache
def time_zones() -> tuple[str, ...]:
    """Names of the IANA database's time zones on this machine, in order."""
    return tuple(sorted(available_timezones() | {"UTC"}))


def _check_name(session: Session, name: str) -> None:
    if len(name) > MAX_NAME or not _NAME.fullmatch(name):
        raise InvalidInput(
            f"A workspace's name has small letters, digits and dashes, starts with a letter or digit and has at most "
            f"{MAX_NAME} characters.",
            field="name",
        )
    if name in RESERVED:
        raise InvalidInput(
            f"{name} is the address of a page of the platform. Choose another name.", field="name"
        )
    if session.scalar(select(Workspace.id).where(Workspace.name == name)) is not None:
        raise Conflict(f"There is already a workspace named {name}.", code="NAME_TAKEN", field="name")


def find_workspace(session: Session, name: str) -> Workspace:
    """The workspace of this name; raises NotFound."""
    workspace = session.scalar(select(Workspace).where(Workspace.name == name))
    if workspace is None:
        raise NotFound(f"There is no workspace named {name}.", code="WORKSPACE_NOT_FOUND")
    return workspace


def membership_of(session: Session, workspace_id: str, user_id: str) -> Membership | None:
    """The person's membership, with its workspace loaded."""
    return session.scalar(
        select(Membership)
        .options(joinedload(Membership.workspace))
        .where(Membership.workspace_id == workspace_id, Membership.user_id == user_id)
    )


@dataclass(frozen=True, slots=True)
class Mine:
    """A workspace as one of its members sees it."""

    workspace: Workspace
    role: str
    repository: Repository | None


def workspaces_of(session: Session, user_id: str) -> list[Mine]:
    """Every workspace of this person, by name."""
    query = (
        select(Workspace, Membership.role, Repository)
        .join(Membership, Membership.workspace_id == Workspace.id)
        .outerjoin(Repository, Repository.workspace_id == Workspace.id)
        .where(Membership.user_id == user_id)
        .order_by(Workspace.name)
    )
    return [Mine(workspace, role, repository) for workspace, role, repository in session.execute(query)]


def members_of(session: Session, workspace_id: str) -> list[tuple[User, Membership]]:
    """Everybody in the workspace, by e-mail address."""
    query = (
        select(User, Membership)
        .join(Membership, Membership.user_id == User.id)
        .where(Membership.workspace_id == workspace_id)
        .order_by(User.email)
    )
    return [(user, membership) for user, membership in session.execute(query)]


def add_member(
    session: Session, workspace_id: str, user: User, role: str, *, by: Membership | None
) -> Membership:
    """Let a person in. Raises Conflict when they are in, Forbidden for a role above the caller's own.

    `by` is None for the administrator at the machine, who may do everything.
    """
    if by is not None:
        check_may_manage(role, by)
    if membership_of(session, workspace_id, user.id) is not None:
        raise Conflict(f"{user.email} is a member already.", code="MEMBER_EXISTS")
    membership = Membership(workspace_id=workspace_id, user_id=user.id, role=role)
    session.add(membership)
    session.flush()
    doer = by.user_id if by is not None else None
    record(session, "member.add", user.email, user_id=doer, workspace_id=workspace_id, role=role)
    return membership


def set_role(session: Session, workspace_id: str, user_id: str, role: str, *, by: Membership) -> Membership:
    """Change a member's role; the last owner stays one. Raises NotFound, Forbidden or Conflict."""
    membership = _member(session, workspace_id, user_id)
    check_may_manage(role, by)
    check_may_manage(membership.role, by)
    if membership.role == role:
        return membership
    if membership.role == "owner":
        _keep_an_owner(session, workspace_id)
    if ROLES.index(role) > ROLES.index(membership.role):
        _withdraw_invites(session, membership)
    record(
        session,
        "member.role",
        _email(session, user_id),
        user_id=by.user_id,
        workspace_id=workspace_id,
        before=membership.role,
        after=role,
    )
    membership.role = role
    return membership


def remove_member(session: Session, workspace_id: str, user_id: str, *, by: Membership) -> None:
    """Take a person out, or leave. The last owner cannot go. Raises NotFound, Forbidden or Conflict."""
    membership = _member(session, workspace_id, user_id)
    if user_id != by.user_id:
        check_may_manage(membership.role, by)
    if membership.role == "owner":
        _keep_an_owner(session, workspace_id)
    _withdraw_invites(session, membership)
    session.delete(membership)
    record(session, "member.remove", _email(session, user_id), user_id=by.user_id, workspace_id=workspace_id)


def complete_quickstart(session: Session, workspace_id: str, user_id: str, intent: str) -> None:
    """Note that this person went through the quickstart; repeating it changes nothing."""
    if not quickstart_completed(session, workspace_id, user_id, intent):
        record(session, _QUICKSTART, intent, user_id=user_id, workspace_id=workspace_id)


def quickstart_completed(
    session: Session, workspace_id: str, user_id: str, intent: str | None = None
) -> bool:
    """Whether this person went through the quickstart in this workspace."""
    query = select(AuditEvent.id).where(
        AuditEvent.workspace_id == workspace_id,
        AuditEvent.user_id == user_id,
        AuditEvent.action == _QUICKSTART,
    )
    if intent is not None:
        query = query.where(AuditEvent.target == intent)
    return session.scalar(query.limit(1)) is not None


def _member(session: Session, workspace_id: str, user_id: str) -> Membership:
    membership = membership_of(session, workspace_id, user_id)
    if membership is None:
        raise NotFound("This person is not a member of the workspace.", code="MEMBER_NOT_FOUND")
    return membership


def check_may_manage(role: str, by: Membership) -> None:
    """Raise unless `by` may give or take this role: InvalidInput for a word that is none, else Forbidden."""
    if role not in ROLES:
        raise InvalidInput(f"A role is one of {', '.join(ROLES)}.", field="role")
    if by.role == "member":
        raise Forbidden("You need the admin role to manage members.")
    if ROLES.index(role) < ROLES.index(by.role):
        raise Forbidden(f"You need the {role} role yourself to manage an {role}.")


def _withdraw_invites(session: Session, membership: Membership) -> None:
    """A link made with rights that its maker has lost must not lead back to them."""
    session.execute(
        update(Invite)
        .where(
            Invite.workspace_id == membership.workspace_id,
            Invite.creator_id == membership.user_id,
            Invite.ended_at.is_(None),
        )
        .values(ended_at=utc_now())
    )


def _keep_an_owner(session: Session, workspace_id: str) -> None:
    # Two owners who leave at the same moment wait for each other here.
    session.get_one(Workspace, workspace_id, with_for_update=True)
    owners = session.scalar(
        select(func.count())
        .select_from(Membership)
        .where(Membership.workspace_id == workspace_id, Membership.role == "owner")
    )
    if owners == 1:
        raise Conflict("A workspace needs an owner. Make somebody else owner first.", code="LAST_OWNER")


def _email(session: Session, user_id: str) -> str:
    return session.get_one(User, user_id).email

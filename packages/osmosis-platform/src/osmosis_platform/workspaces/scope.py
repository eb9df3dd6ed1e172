"""Which workspace a request means, and whether the caller belongs to it.

Unknown and foreign workspaces get the same answer, so that nobody learns which ones exist.
"""

from __future__ import annotations

import re

from sqlalchemy import select
from sqlalchemy.orm import Session, joinedload

from osmosis_platform.errors import Forbidden, InvalidInput
from osmosis_platform.repositories.models import Repository
from osmosis_platform.workspaces.models import ROLES, Membership, Workspace

_IDENTITY = re.compile(r"[a-z0-9][a-z0-9-]*/[a-z0-9._-]+")


def find_by_repository(session: Session, user_id: str, identity: str) -> Membership | None:
    """The user's membership in the workspace that this `owner/repo` (any case) is connected to."""
    return session.scalar(
        select(Membership)
        .options(joinedload(Membership.workspace))
        .join(Repository, Repository.workspace_id == Membership.workspace_id)
        .where(Membership.user_id == user_id, Repository.identity == identity.strip().lower())
    )


def by_repository(session: Session, user_id: str, identity: str | None) -> Membership:
    """Like `find_by_repository`, but raises InvalidInput or Forbidden with the scope codes of the API."""
    if identity is None or not identity.strip():
        raise InvalidInput(
            "This request needs a workspace. Run the command inside a clone of the workspace's repository, "
            "or name the workspace with --workspace.",
            code="GIT_SCOPE_HEADER_REQUIRED",
        )
    if not _IDENTITY.fullmatch(identity.strip().lower()):
        raise InvalidInput(
            "The repository identity has to look like owner/repo.", code="GIT_SCOPE_HEADER_INVALID"
        )
    membership = find_by_repository(session, user_id, identity)
    if membership is None:
        raise Forbidden(
            f"The repository {identity.strip().lower()} is not connected to a workspace that you belong to.",
            code="GIT_SCOPE_HEADER_ACCESS_DENIED",
        )
    return membership


def by_name(session: Session, user_id: str, name: str) -> Membership:
    """The user's membership in the workspace of this name; raises Forbidden when there is none."""
    membership = session.scalar(
        select(Membership)
        .options(joinedload(Membership.workspace))
        .join(Workspace, Workspace.id == Membership.workspace_id)
        .where(Membership.user_id == user_id, Workspace.name == name.strip())
    )
    if membership is None:
        raise Forbidden(
            "There is no workspace of that name that you belong to.",
            code="WORKSPACE_SCOPE_HEADER_ACCESS_DENIED",
        )
    return membership


def check_role(role: str, minimum: str, workspace: str, to: str) -> None:
    """Raise Forbidden unless `role` is at least `minimum` (owner > admin > member); `to` completes the sentence."""
    if ROLES.index(role) > ROLES.index(minimum):
        raise Forbidden(f"You need the {minimum} role in the workspace {workspace} to {to}; you are {role}.")

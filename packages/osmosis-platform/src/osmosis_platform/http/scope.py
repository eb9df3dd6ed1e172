"""Who asks, and for which workspace: dependencies of API routes.

Each opens its own short read transaction; the objects it returns are detached, with every column loaded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, cast

from fastapi import Depends, Request
from sqlalchemy import select

from osmosis_platform.accounts.models import AccessToken, User
from osmosis_platform.accounts.tokens import authenticate, mark_used
from osmosis_platform.context import Platform
from osmosis_platform.errors import Forbidden, InvalidInput, Unauthenticated
from osmosis_platform.repositories.models import Repository
from osmosis_platform.workspaces.models import ROLES, Workspace
from osmosis_platform.workspaces.scope import by_name, by_repository


def platform(request: Request) -> Platform:
    """The platform that serves this request."""
    return cast(Platform, request.app.state.platform)


PlatformDep = Annotated[Platform, Depends(platform)]


@dataclass(frozen=True, slots=True)
class Caller:
    """The person behind a bearer token."""

    user: User
    token: AccessToken


def bearer_token(request: Request) -> str:
    """The token of the Authorization header; raises Unauthenticated with a code that says what is missing."""
    header = request.headers.get("authorization")
    if header is None:
        raise Unauthenticated(
            "Sign in first: this request has no Authorization header.", code="AUTH_HEADER_MISSING"
        )
    kind, _, token = header.partition(" ")
    if kind.lower() != "bearer" or not token.strip():
        raise Unauthenticated(
            'The Authorization header holds no token; it has to be "Bearer <token>".', code="TOKEN_MISSING"
        )
    return token.strip()


def current_user(request: Request, platform: PlatformDep) -> Caller:
    """The caller; raises Unauthenticated (401) for a token that is unknown, expired or revoked."""
    text = bearer_token(request)
    with platform.database.read() as session:
        token = authenticate(session, text)
        user = token.user
    mark_used(platform.database, token)
    return Caller(user, token)


CurrentUser = Annotated[Caller, Depends(current_user)]


@dataclass(frozen=True, slots=True)
class WorkspaceScope:
    """A member's view of one workspace; `repository` is its connected repository, if any."""

    user: User
    token: AccessToken
    workspace: Workspace
    role: str
    repository: Repository | None

    def require_role(self, minimum: str, to: str) -> None:
        """Raise Forbidden unless the caller is at least `minimum` (owner > admin > member); `to` completes the sentence."""
        if ROLES.index(self.role) > ROLES.index(minimum):
            raise Forbidden(
                f"You need the {minimum} role in the workspace {self.workspace.name} to {to}; you are {self.role}."
            )


def workspace_scope(request: Request, platform: PlatformDep, caller: CurrentUser) -> WorkspaceScope:
    """The workspace named by `X-Osmosis-Git` (owner/repo) or `X-Osmosis-Workspace`, if the caller is a member."""
    git = request.headers.get("x-osmosis-git")
    name = request.headers.get("x-osmosis-workspace")
    if git is not None and name is not None:
        raise InvalidInput(
            "Name the workspace either by its repository or by its name, not both.",
            code="WORKSPACE_SCOPE_HEADER_CONFLICT",
        )
    with platform.database.read() as session:
        if name is not None:
            membership = by_name(session, caller.user.id, name)
        else:
            membership = by_repository(session, caller.user.id, git)
        workspace = membership.workspace
        repository = session.scalar(select(Repository).where(Repository.workspace_id == workspace.id))
    return WorkspaceScope(caller.user, caller.token, workspace, membership.role, repository)


Scope = Annotated[WorkspaceScope, Depends(workspace_scope)]

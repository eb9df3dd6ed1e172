"""Who asks, and for which workspace: dependencies of API routes.

Each opens its own short read transaction; the objects it returns are detached, with every column loaded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, cast

from fastapi import Depends, Header, Request
from fastapi.security import HTTPBearer
from sqlalchemy import select

from osmosis_platform.accounts.models import AccessToken, User
from osmosis_platform.accounts.tokens import authenticate, mark_used
from osmosis_platform.context import Platform
from osmosis_platform.errors import InvalidInput, Unauthenticated
from osmosis_platform.repositories.models import Repository
from osmosis_platform.workspaces.models import Workspace
from osmosis_platform.workspaces.scope import by_name, by_repository, check_role


def platform(request: Request) -> Platform:
    """The platform that serves this request."""
    return cast(Platform, request.app.state.platform)


PlatformDep = Annotated[Platform, Depends(platform)]


def client_address(request: Request) -> str:
    """Where the request came from, as limits on tries count it."""
    return request.client.host if request.client else "unknown"


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


# For the API's description only: what it would answer itself is no envelope of ours.
_described = Depends(HTTPBearer(auto_error=False, scheme_name="token"))


def current_user(request: Request, platform: PlatformDep, _scheme: Any = _described) -> Caller:
    """The caller; raises Unauthenticated (401) for a token that is unknown, expired or revoked."""
    text = bearer_token(request)
    with platform.database.read() as session, platform.limits.guessing(client_address(request)):
        token = authenticate(session, text)
        user = token.user
    mark_used(platform.database, token)
    return Caller(user, token)


CurrentUser = Annotated[Caller, Depends(current_user)]


@dataclass(frozen=True, slots=True)
class WorkspaceScope:
    """A member's view of one workspace; `repository` is its connected repository, if any."""

    user: User
    workspace: Workspace
    role: str
    repository: Repository | None

    def require_role(self, minimum: str, to: str) -> None:
        """Raise Forbidden unless the caller is at least `minimum` (owner > admin > member); `to` completes the sentence."""
        check_role(self.role, minimum, self.workspace.name, to)


def workspace_scope(
    platform: PlatformDep,
    caller: CurrentUser,
    x_osmosis_git: Annotated[
        str | None, Header(alias="X-Osmosis-Git", description="The workspace's repository, owner/repo.")
    ] = None,
    x_osmosis_workspace: Annotated[
        str | None, Header(alias="X-Osmosis-Workspace", description="The workspace's name, instead.")
    ] = None,
) -> WorkspaceScope:
    """The workspace named by `X-Osmosis-Git` (owner/repo) or `X-Osmosis-Workspace`, if the caller is a member."""
    if x_osmosis_git is not None and x_osmosis_workspace is not None:
        raise InvalidInput(
            "Name the workspace either by its repository or by its name, not both.",
            code="WORKSPACE_SCOPE_HEADER_CONFLICT",
        )
    with platform.database.read() as session:
        if x_osmosis_workspace is not None:
            membership = by_name(session, caller.user.id, x_osmosis_workspace)
        else:
            membership = by_repository(session, caller.user.id, x_osmosis_git)
        workspace = membership.workspace
        repository = session.scalar(select(Repository).where(Repository.workspace_id == workspace.id))
    return WorkspaceScope(caller.user, workspace, membership.role, repository)


Scope = Annotated[WorkspaceScope, Depends(workspace_scope)]

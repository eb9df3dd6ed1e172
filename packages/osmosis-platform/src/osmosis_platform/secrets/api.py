"""`/api/cli/environment-secrets`: names and scopes go out, values only come in."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel
from sqlalchemy import select
from sqlalchemy.orm import Session

from osmosis_platform.accounts.models import User
from osmosis_platform.context import Platform
from osmosis_platform.http.paging import PageQuery, page_of
from osmosis_platform.http.scope import PlatformDep, Scope, WorkspaceScope
from osmosis_platform.secrets import service
from osmosis_platform.secrets.models import Secret

router = APIRouter(prefix="/api/cli/environment-secrets", tags=["secrets"])


class SecretName(BaseModel):
    """Which secret; `user` is a personal one."""

    name: str
    scope: Literal["workspace", "user"]


class SecretValue(SecretName):
    """A secret to set."""

    value: str


@router.get("")
def list_secrets(
    scope: Scope,
    platform: PlatformDep,
    page: PageQuery,
    which: Annotated[Literal["all", "workspace", "user"], Query(alias="scope")] = "all",
) -> dict[str, Any]:
    """The workspace's secrets and the caller's own, without values."""
    with platform.database.read() as session:
        query = service.list_query(scope.workspace.id, scope.user.id, which)
        secrets, total = page_of(session, query, page)
        items = bodies(session, secrets)
    return {**page.body("environment_secrets", items, total), "platform_url": page_url(platform, scope)}


@router.post("")
def set_secret(body: SecretValue, scope: Scope, platform: PlatformDep) -> dict[str, Any]:
    """Create or replace a secret."""
    _check_role(scope, body.scope)
    with platform.database.write() as session:
        secret = service.set_secret(
            session,
            platform.keys,
            workspace_id=scope.workspace.id,
            user_id=scope.user.id,
            scope=body.scope,
            name=body.name,
            value=body.value,
        )
        item = bodies(session, [secret])[0]
    return {**item, "platform_url": page_url(platform, scope)}


@router.delete("", status_code=204)
def delete_secret(body: SecretName, scope: Scope, platform: PlatformDep) -> Response:
    """Delete a secret."""
    _check_role(scope, body.scope)
    with platform.database.write() as session:
        service.delete_secret(
            session, workspace_id=scope.workspace.id, user_id=scope.user.id, scope=body.scope, name=body.name
        )
    return Response(status_code=204)


def bodies(session: Session, secrets: list[Secret]) -> list[dict[str, Any]]:
    """Secrets on the wire: everything but the value."""
    ids = {id for secret in secrets for id in (secret.creator_id, secret.updater_id) if id}
    people = {user.id: user.name for user in session.scalars(select(User).where(User.id.in_(ids)))}
    return [
        {
            "id": secret.id,
            "name": secret.name,
            "scope": secret.scope,
            "created_at": secret.created_at.isoformat(),
            "updated_at": secret.updated_at.isoformat(),
            "creator_name": people.get(secret.creator_id),
            "updater_name": people.get(secret.updater_id or secret.creator_id),
        }
        for secret in secrets
    ]


def page_url(platform: Platform, scope: WorkspaceScope) -> str:
    """The address of the workspace's secrets page."""
    return f"{platform.settings.resolved_public_url}/{scope.workspace.name}/secrets"


def _check_role(scope: WorkspaceScope, secret_scope: str) -> None:
    if secret_scope == "workspace":
        scope.require_role("admin", "change secrets of the workspace")

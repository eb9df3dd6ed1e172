"""The secrets page: names, scopes and use, never values. Values only come in."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Form, Query, Request, Response
from fastapi.responses import RedirectResponse
from sqlalchemy.orm import Session

from osmosis_platform.accounts.models import User
from osmosis_platform.errors import InvalidInput, NotFound
from osmosis_platform.http.paging import Offset, page_of
from osmosis_platform.http.scope import PlatformDep
from osmosis_platform.secrets import service
from osmosis_platform.secrets.models import Secret
from osmosis_platform.web.pages import render
from osmosis_platform.web.viewer import Csrf, Viewer, ViewerDep, page_at

router = APIRouter(include_in_schema=False)
SCOPES = {"workspace": "workspace", "user": "personal"}
TO_CHANGE = "change secrets of the workspace"

Scope = Literal["workspace", "personal"]


@router.get("/{workspace}/secrets")
def secrets_page(
    request: Request,
    platform: PlatformDep,
    viewer: ViewerDep,
    offset: Offset = 0,
    name: Annotated[str, Query(max_length=service.MAX_NAME)] = "",
    scope: Scope = "personal",
) -> Response:
    """Secrets of the workspace and the person's own, newest first; `name` and `scope` fill the form."""
    return _page(request, platform, viewer, offset=offset, name=name, scope=scope)


@router.post("/{workspace}/secrets", dependencies=[Csrf])
def set_secret(
    request: Request,
    platform: PlatformDep,
    viewer: ViewerDep,
    name: Annotated[str, Form()] = "",
    scope: Annotated[Scope, Form()] = "personal",
    value: Annotated[str, Form()] = "",
) -> Response:
    """Create or replace a secret. What was typed as its value is never sent back."""
    if scope == "workspace":
        viewer.require_role("admin", TO_CHANGE)
    try:
        with platform.database.write() as session:
            service.set_secret(
                session,
                platform.keys,
                workspace_id=viewer.workspace_id,
                user_id=viewer.user.id,
                scope="workspace" if scope == "workspace" else "user",
                name=name.strip(),
                value=value.replace("\r\n", "\n"),  # forms send line ends so
            )
    except InvalidInput as problem:
        return _page(
            request, platform, viewer, name=name, scope=scope, error=problem.message, status=problem.status
        )
    return RedirectResponse(f"/{viewer.workspace}/secrets", status_code=303)


@router.post("/{workspace}/secrets/{secret_id}/delete", dependencies=[Csrf])
def delete_secret(platform: PlatformDep, viewer: ViewerDep, secret_id: str) -> Response:
    """Delete a secret; runs that are going on keep what they got."""
    with platform.database.write() as session:
        visible = service.list_query(viewer.workspace_id, viewer.user.id).where(Secret.id == secret_id)
        secret = session.scalar(visible)
        if secret is None:
            raise NotFound("There is no such secret: it was deleted already.", code="SECRET_NOT_FOUND")
        if secret.scope == "workspace":
            viewer.require_role("admin", TO_CHANGE)
        service.delete_secret(
            session,
            workspace_id=viewer.workspace_id,
            user_id=viewer.user.id,
            scope="workspace" if secret.scope == "workspace" else "user",
            name=secret.name,
        )
    return RedirectResponse(f"/{viewer.workspace}/secrets", status_code=303)


def _page(
    request: Request,
    platform: PlatformDep,
    viewer: Viewer,
    *,
    offset: int = 0,
    name: str = "",
    scope: str = "personal",
    error: str | None = None,
    status: int = 200,
) -> Response:
    page = page_at(offset)
    with platform.database.read() as session:
        found, total = page_of(session, service.list_query(viewer.workspace_id, viewer.user.id), page)
        own = service.own_names(session, viewer.workspace_id, viewer.user.id, {s.name for s in found})
        shared = {secret.name for secret in found if secret.scope == "workspace"}
        items = [_row(session, viewer, secret, secret.name in own & shared) for secret in found]
    data = {
        "secrets": items,
        "page": {"limit": page.limit, "offset": page.offset, "total": total},
        "error": error,
    }
    return render(
        request,
        "secrets.html",
        data,
        status=status,
        viewer=viewer,
        room="secrets",
        name=name,
        scope=scope,
        pattern="[A-Z][A-Z0-9_]*",
    )


def _row(session: Session, viewer: Viewer, secret: Secret, twice: bool) -> dict[str, Any]:
    """`used_instead`: of a workspace's secret, that the person's own of its name is what their runs get."""
    creator, updater = (
        session.get(User, id) if id else None for id in (secret.creator_id, secret.updater_id)
    )
    return {
        "id": secret.id,
        "name": secret.name,
        "scope": SCOPES[secret.scope],
        "overrides": twice and secret.scope == "user",
        "used_instead": twice and secret.scope == "workspace",
        "created_at": secret.created_at.isoformat(),
        "updated_at": secret.updated_at.isoformat(),
        "last_used_at": secret.last_used_at.isoformat() if secret.last_used_at else None,
        "creator_name": creator.name if creator else None,
        "updater_name": updater.name if updater else (creator.name if creator else None),
        "may_change": secret.scope == "user" or viewer.may("admin"),
    }

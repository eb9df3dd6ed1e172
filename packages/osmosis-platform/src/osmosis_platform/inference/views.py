"""The page of the workspace's API keys: made here, shown once, ended here."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Form, Request, Response
from fastapi.responses import RedirectResponse

from osmosis_platform.accounts.models import User
from osmosis_platform.errors import InvalidInput
from osmosis_platform.http.scope import PlatformDep
from osmosis_platform.inference import keys
from osmosis_platform.inference.models import ApiKey
from osmosis_platform.web.pages import render
from osmosis_platform.web.viewer import Csrf, Viewer, ViewerDep

router = APIRouter(include_in_schema=False)


@router.get("/{workspace}/settings/keys")
def keys_page(request: Request, platform: PlatformDep, viewer: ViewerDep) -> Response:
    """Keys that work, newest first; their text is never shown again."""
    return _page(request, platform, viewer)


@router.get("/{workspace}/api-keys")
def keys_address(viewer: ViewerDep) -> Response:
    """The address that clients print."""
    return RedirectResponse(f"/{viewer.workspace}/settings/keys", status_code=303)


@router.post("/{workspace}/settings/keys", dependencies=[Csrf])
def create_key(
    request: Request, platform: PlatformDep, viewer: ViewerDep, name: Annotated[str, Form()] = ""
) -> Response:
    """Create a key; the answer is the only place that has its text."""
    viewer.require_role("admin", "create API keys")
    try:
        with platform.database.write() as session:
            key, text = keys.create_key(session, viewer.workspace_id, viewer.user, name)
    except InvalidInput as problem:
        return _page(request, platform, viewer, error=problem.message, name=name, status=problem.status)
    created = {"id": key.id, "name": key.name, "key": text}
    return _page(request, platform, viewer, created=created, status=201)


@router.post("/{workspace}/settings/keys/{key_id}/revoke", dependencies=[Csrf])
def revoke_key(platform: PlatformDep, viewer: ViewerDep, key_id: str) -> Response:
    """End a key at once."""
    viewer.require_role("admin", "revoke API keys")
    with platform.database.write() as session:
        keys.revoke_key(session, viewer.workspace_id, viewer.user, key_id)
    return RedirectResponse(f"/{viewer.workspace}/settings/keys", status_code=303)


def _page(
    request: Request,
    platform: PlatformDep,
    viewer: Viewer,
    *,
    created: dict[str, str] | None = None,
    error: str | None = None,
    name: str = "",
    status: int = 200,
) -> Response:
    with platform.database.read() as session:
        found = [
            _row(key, session.get_one(User, key.creator_id))
            for key in keys.list_keys(session, viewer.workspace_id)
        ]
    data = {"keys": found, "created": created, "error": error}
    url = f"{platform.settings.resolved_public_url}/v1"
    return render(
        request,
        "keys.html",
        data,
        status=status,
        viewer=viewer,
        room="settings",
        name=name,
        inference_url=url,
    )


def _row(key: ApiKey, creator: User) -> dict[str, Any]:
    return {
        "id": key.id,
        "name": key.name,
        "hint": key.hint,
        "creator_name": creator.name,
        "created_at": key.created_at.isoformat(),
        "last_used_at": key.last_used_at.isoformat() if key.last_used_at else None,
    }

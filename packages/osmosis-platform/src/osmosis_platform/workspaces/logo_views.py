"""The workspace's logo: sent by an admin, shown to members."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, File, Response
from fastapi.responses import RedirectResponse

from osmosis_platform.errors import InvalidInput, NotFound
from osmosis_platform.http.scope import PlatformDep
from osmosis_platform.web.viewer import Csrf, Viewer, ViewerDep
from osmosis_platform.workspaces.logo import set_logo
from osmosis_platform.workspaces.models import Workspace

router = APIRouter(include_in_schema=False)


@router.get("/{workspace}/logo")
def logo(platform: PlatformDep, viewer: ViewerDep) -> Response:
    """The picture, which a browser draws and nothing else."""
    with platform.database.read() as session:
        workspace = session.get_one(Workspace, viewer.workspace_id)
    if workspace.logo_sha256 is None:
        raise NotFound(f"The workspace {workspace.name} has no logo.")
    headers = {
        "Cache-Control": "private, max-age=86400",
        "Content-Security-Policy": "sandbox; default-src 'none'",
        "ETag": f'"{workspace.logo_sha256}"',
    }
    content = platform.blobs.read_bytes(workspace.logo_sha256)
    return Response(content, media_type=workspace.logo_type, headers=headers)


@router.post("/{workspace}/settings/logo", dependencies=[Csrf])
def change_logo(platform: PlatformDep, viewer: ViewerDep, file: Annotated[bytes, File()] = b"") -> Response:
    """Set another logo."""
    viewer.require_role("admin", "change its logo")
    if not file:
        raise InvalidInput("Choose a picture first.", field="file")
    return _set(platform, viewer, file)


@router.post("/{workspace}/settings/logo/remove", dependencies=[Csrf])
def remove_logo(platform: PlatformDep, viewer: ViewerDep) -> Response:
    """Go without a logo."""
    viewer.require_role("admin", "change its logo")
    return _set(platform, viewer, b"")


def _set(platform: PlatformDep, viewer: Viewer, content: bytes) -> Response:
    with platform.database.write() as session:
        workspace = session.get_one(Workspace, viewer.workspace_id)
        set_logo(session, platform, workspace, content, by=viewer.user)
    return RedirectResponse(f"/{viewer.workspace}/settings", status_code=303)

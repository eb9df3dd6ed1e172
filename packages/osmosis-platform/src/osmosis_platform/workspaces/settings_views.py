"""The general settings of a workspace: its name, its time zone, its end."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Request, Response
from fastapi.responses import RedirectResponse
from sqlalchemy import select

from osmosis_platform.errors import Conflict, InvalidInput
from osmosis_platform.http.scope import PlatformDep
from osmosis_platform.repositories.models import Repository
from osmosis_platform.web.pages import render
from osmosis_platform.web.viewer import Csrf, Viewer, ViewerDep
from osmosis_platform.workspaces.models import Workspace
from osmosis_platform.workspaces.removal import delete_workspace
from osmosis_platform.workspaces.service import change_workspace, time_zones

router = APIRouter(include_in_schema=False)
PATH = "/{workspace}/settings"


@router.get(PATH)
def settings_page(request: Request, platform: PlatformDep, viewer: ViewerDep) -> Response:
    """What the workspace is called, and where its repository is."""
    return _page(request, platform, viewer)


@router.post(PATH, dependencies=[Csrf])
def change_settings(
    request: Request,
    platform: PlatformDep,
    viewer: ViewerDep,
    name: Annotated[str, Form()] = "",
    timezone: Annotated[str, Form()] = "",
) -> Response:
    """Give the workspace another name or time zone."""
    viewer.require_role("admin", "change its settings")
    try:
        with platform.database.write() as session:
            workspace = session.get_one(Workspace, viewer.workspace_id)
            change_workspace(session, workspace, name.strip(), timezone, by=viewer.user)
    except (InvalidInput, Conflict) as problem:
        return _page(request, platform, viewer, error=problem.message, name=name, status=problem.status)
    return RedirectResponse(f"/{workspace.name}/settings", status_code=303)


@router.post(PATH + "/delete", dependencies=[Csrf])
def delete(
    request: Request, platform: PlatformDep, viewer: ViewerDep, confirm: Annotated[str, Form()] = ""
) -> Response:
    """Delete the workspace with all that is in it."""
    viewer.require_role("owner", "delete it")
    try:
        with platform.database.write() as session:
            workspace = session.get_one(Workspace, viewer.workspace_id)
            leftovers = delete_workspace(session, workspace, confirm, by=viewer.user)
    except (InvalidInput, Conflict) as problem:
        return _page(request, platform, viewer, error=problem.message, status=problem.status)
    if platform.supervisor is not None:
        platform.supervisor.inference.sync_soon()
    leftovers.remove(platform)
    return RedirectResponse("/", status_code=303)


def _page(
    request: Request,
    platform: PlatformDep,
    viewer: Viewer,
    *,
    error: str | None = None,
    name: str | None = None,
    status: int = 200,
) -> Response:
    with platform.database.read() as session:
        repository = session.scalar(
            select(Repository.full_name).where(Repository.workspace_id == viewer.workspace_id)
        )
    data = {
        "id": viewer.workspace_id,
        "workspace": viewer.workspace,
        "timezone": viewer.zone,
        "repository": repository,
        "error": error,
    }
    zones = time_zones() if viewer.may("admin") else ()
    typed = viewer.workspace if name is None else name
    return render(
        request,
        "settings.html",
        data,
        status=status,
        viewer=viewer,
        room="settings",
        zones=zones,
        typed=typed,
    )

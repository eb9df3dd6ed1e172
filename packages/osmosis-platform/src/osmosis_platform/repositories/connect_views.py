"""Forms that connect a workspace to a repository on another host, keep that connection, and end it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Request, Response

from osmosis_platform.errors import Conflict, InvalidInput
from osmosis_platform.http.scope import PlatformDep
from osmosis_platform.repositories import mirrors, remote
from osmosis_platform.repositories.remote import RemoteError
from osmosis_platform.repositories.service import remove_unowned
from osmosis_platform.repositories.views import back, show
from osmosis_platform.web.viewer import Csrf, ViewerDep
from osmosis_platform.workspaces.models import Workspace

router = APIRouter(include_in_schema=False)
PATH = "/{workspace}/git/connection"
TO = "connect its repository"


@router.post(PATH, dependencies=[Csrf])
def connect(
    request: Request,
    platform: PlatformDep,
    viewer: ViewerDep,
    url: Annotated[str, Form()] = "",
    token: Annotated[str, Form()] = "",
) -> Response:
    """Make the workspace's repository a mirror of the one at `url`, once its host has shown it."""
    viewer.require_role("admin", TO)
    try:
        origin, branch = mirrors.check_origin(platform, url, token)
        with platform.database.write() as session:
            workspace = session.get_one(Workspace, viewer.workspace_id, with_for_update=True)
            mirrors.connect(session, platform, workspace, origin, branch, by=viewer.user)
    except (InvalidInput, Conflict, RemoteError) as problem:
        return show(
            request, platform, viewer, error=problem.message, typed=url.strip(), answer=problem.status
        )
    return back(viewer)


@router.post(PATH + "/token", dependencies=[Csrf])
def change_token(
    request: Request, platform: PlatformDep, viewer: ViewerDep, token: Annotated[str, Form()] = ""
) -> Response:
    """Use another access token from now on, once the host has taken it; an empty one is none."""
    viewer.require_role("admin", TO)
    try:
        with platform.database.read() as session:
            origin = mirrors.origin_in(session, platform, viewer.workspace_id, token.strip())
        anywhere = platform.settings.webhooks_anywhere
        remote.default_branch(origin, anywhere=anywhere, seconds=mirrors.CHECK_SECONDS)
        with platform.database.write() as session:
            mirrors.set_token(session, platform, viewer.workspace_id, origin, by=viewer.user)
    except (InvalidInput, RemoteError) as problem:
        return show(request, platform, viewer, error=problem.message, answer=problem.status)
    return back(viewer)


@router.post(PATH + "/secret", dependencies=[Csrf])
def new_secret(request: Request, platform: PlatformDep, viewer: ViewerDep) -> Response:
    """Make a new secret of the push webhook; the answer is the only place that has it."""
    viewer.require_role("admin", TO)
    with platform.database.write() as session:
        secret = mirrors.new_secret(session, platform, viewer.workspace_id, by=viewer.user)
    return show(request, platform, viewer, secret=secret, answer=201)


@router.post(PATH + "/remove", dependencies=[Csrf])
def disconnect(platform: PlatformDep, viewer: ViewerDep) -> Response:
    """Return to the built-in repository, or to none."""
    viewer.require_role("admin", "disconnect its repository")
    with platform.database.write() as session:
        mirror = mirrors.disconnect(session, platform, viewer.workspace_id, by=viewer.user)
    with platform.database.write() as session:
        remove_unowned(session, platform, mirror)
    return back(viewer)

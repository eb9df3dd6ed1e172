"""The page where a workspace begins: a new one with its repository, or the way into one that is there."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Form, Request, Response
from fastapi.responses import RedirectResponse

from osmosis_ai.templates import write_workspace
from osmosis_platform.errors import Conflict, InvalidInput, PlatformError
from osmosis_platform.http.scope import PlatformDep
from osmosis_platform.repositories import mirrors
from osmosis_platform.repositories.remote import RemoteError
from osmosis_platform.repositories.service import create_repository
from osmosis_platform.web.pages import render
from osmosis_platform.web.viewer import Csrf, SignedIn, SignedInDep
from osmosis_platform.workspaces.service import create_workspace, workspaces_of

router = APIRouter(include_in_schema=False)
REPOSITORY = "agents"


@router.get("/new")
def new_page(request: Request, platform: PlatformDep, person: SignedInDep) -> Response:
    """The form."""
    return _page(request, platform, person)


@router.post("/new", dependencies=[Csrf])
def create(
    request: Request,
    platform: PlatformDep,
    person: SignedInDep,
    name: Annotated[str, Form()] = "",
    url: Annotated[str, Form()] = "",
    token: Annotated[str, Form()] = "",
) -> Response:
    """Create a workspace, of which the person is the owner, with a repository from the template or the one at `url`."""
    name, url = name.strip(), url.strip()
    try:
        platform.limits.new_workspaces.check(f"user:{person.user.id}")
        found = mirrors.check_origin(platform, url, token) if url else None
        with platform.database.write() as session:
            workspace = create_workspace(session, name, person.user)
            if found is not None:
                mirrors.connect(session, platform, workspace, *found, by=person.user)
            else:
                create_repository(
                    session, platform, workspace, REPOSITORY, author=person.user, write_tree=write_workspace
                )
    except (InvalidInput, Conflict, RemoteError) as problem:
        return _page(request, platform, person, error=problem, name=name, url=url)
    return RedirectResponse(f"/{name}/git", status_code=303)


def _page(
    request: Request,
    platform: PlatformDep,
    person: SignedIn,
    *,
    error: PlatformError | None = None,
    name: str = "",
    url: str = "",
) -> Response:
    with platform.database.read() as session:
        mine = [item.workspace.name for item in workspaces_of(session, person.user.id)]
    data: dict[str, Any] = {"workspaces": mine, "error": error.message if error else None}
    status = error.status if error else 200
    chrome = {
        "person": person.user,
        "csrf": person.session.csrf_token,
        "name": name,
        "url": url,
        "page": "new",
    }
    return render(request, "new_workspace.html", data, status=status, **chrome)

"""Renaming a run, and stopping or deleting several at once after a look at what that means."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Form, Query, Request, Response
from fastapi.responses import RedirectResponse

from osmosis_platform.accounts.views import safe_target
from osmosis_platform.context import Platform
from osmosis_platform.errors import Conflict, InvalidInput
from osmosis_platform.http.scope import PlatformDep
from osmosis_platform.runs import manage, service
from osmosis_platform.runs.models import TERMINAL
from osmosis_platform.runs.views import KIND, TITLE, Room
from osmosis_platform.web.pages import render
from osmosis_platform.web.viewer import Csrf, Viewer, ViewerDep

router = APIRouter(include_in_schema=False)
Action = Literal["stop", "delete"]
# One page of a list can be chosen at once.
MAX_CHOSEN = 50


Chosen = Annotated[list[str] | None, Query(max_length=MAX_CHOSEN)]


@router.get("/{workspace}/{room:room}/bulk")
def bulk_page(
    request: Request,
    platform: PlatformDep,
    viewer: ViewerDep,
    room: Room,
    action: Action,
    run: Chosen = None,
    back: str = "",
) -> Response:
    """What would happen to each of the chosen runs, and the button that does it."""
    items = [_look(platform, viewer, room, run_id, action) for run_id in chosen_ids(run)]
    return _page(request, viewer, room, action, items, back, done=False)


@router.post("/{workspace}/{room:room}/bulk", dependencies=[Csrf])
def bulk(
    request: Request,
    platform: PlatformDep,
    viewer: ViewerDep,
    room: Room,
    action: Annotated[Action, Form()],
    run: Annotated[list[str] | None, Form(max_length=MAX_CHOSEN)] = None,
    back: Annotated[str, Form()] = "",
) -> Response:
    """Stop or delete the chosen runs; those that cannot be stay, and the answer says why."""
    items = [_act(platform, viewer, room, run_id, action) for run_id in chosen_ids(run)]
    if any(item["refused"] for item in items):
        return _page(request, viewer, room, action, items, back, done=True)
    return RedirectResponse(safe_target(back or f"/{viewer.workspace}/{room}"), status_code=303)


def chosen_ids(given: list[str] | None) -> list[str]:
    """What was ticked, each once; raises InvalidInput for nothing."""
    if not given:
        raise InvalidInput("Nothing is chosen. Go back and tick at least one.")
    return list(dict.fromkeys(given))


def _page(
    request: Request,
    viewer: Viewer,
    room: Room,
    action: Action,
    items: list[dict[str, Any]],
    back: str,
    *,
    done: bool,
) -> Response:
    data: dict[str, Any] = {"action": action, "runs": items, "done": done}
    list_path = f"/{viewer.workspace}/{room}"
    return render(
        request,
        "bulk.html",
        data,
        viewer=viewer,
        room=room,
        back=safe_target(back or list_path),
        noun="run",
        field="run",
        path=f"{list_path}/bulk",
        list_path=list_path,
        list_title=TITLE[room],
        items=items,
    )


def _look(platform: Platform, viewer: Viewer, room: Room, run_id: str, action: Action) -> dict[str, Any]:
    with platform.database.read() as session:
        run = service.find_run(session, viewer.workspace_id, KIND[room], run_id)
        if action == "delete":
            reason = manage.why_not_deleted(session, run)
        else:
            reason = f"It is {run.status} already." if run.status in TERMINAL else None
    return {"id": run.id, "name": run.name, "status": run.status, "refused": reason}


def _act(platform: Platform, viewer: Viewer, room: Room, run_id: str, action: Action) -> dict[str, Any]:
    refused, leftovers = None, None
    with platform.database.write() as session:
        run = service.find_run(session, viewer.workspace_id, KIND[room], run_id)
        try:
            if action == "delete":
                leftovers = manage.delete_run(session, run, by=viewer.user)
            elif run.status not in TERMINAL:
                service.request_stop(session, platform, run, viewer.user)
        except Conflict as problem:
            refused = problem.message
    if leftovers is not None:
        leftovers.remove(platform)
    return {"id": run.id, "name": run.name, "status": run.status, "refused": refused}


@router.post("/{workspace}/{room:room}/{name_or_id}/rename", dependencies=[Csrf])
def rename_run(
    platform: PlatformDep, viewer: ViewerDep, room: Room, name_or_id: str, name: Annotated[str, Form()] = ""
) -> Response:
    """Give the run another name."""
    with platform.database.write() as session:
        run = service.find_run(session, viewer.workspace_id, KIND[room], name_or_id)
        manage.rename(session, run, name, by=viewer.user)
    return RedirectResponse(f"/{viewer.workspace}/{room}/{run.id}", status_code=303)

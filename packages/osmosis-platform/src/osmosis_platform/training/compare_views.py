"""Trainings beside each other: their settings, and the curves of all in the same charts."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from osmosis_platform.http.scope import PlatformDep
from osmosis_platform.runs import side_by_side
from osmosis_platform.web.pages import render
from osmosis_platform.web.viewer import ViewerDep

router = APIRouter(include_in_schema=False)


@router.get("/{workspace}/compare/training")
def compare_trainings(
    request: Request,
    platform: PlatformDep,
    viewer: ViewerDep,
    run: Annotated[list[str], Query(max_length=20)] = [],  # noqa: B006 # FastAPI copies it
) -> Response:
    """The runs `run` (names or ids, the first is the baseline): figures, differing settings, charts."""
    with platform.database.read() as session:
        data = side_by_side.page_data(session, viewer, "train", run)
        data["drawn"] = [
            side_by_side.drawn(viewer, found["id"], found["name"], found["letter"]) for found in data["runs"]
        ]
    return render(
        request,
        "compare_trainings.html",
        data,
        viewer=viewer,
        room="training",
        **side_by_side.chrome(viewer, "train"),
    )

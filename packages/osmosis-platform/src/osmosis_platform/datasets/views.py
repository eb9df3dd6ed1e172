"""Dataset pages."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from osmosis_platform.accounts.models import User
from osmosis_platform.datasets import service
from osmosis_platform.http.scope import PlatformDep
from osmosis_platform.runs.log_view import has_older, newest_lines
from osmosis_platform.web.pages import render
from osmosis_platform.web.viewer import ViewerDep, page_at

router = APIRouter(include_in_schema=False)
COLUMNS = ("system_prompt", "user_prompt", "ground_truth", "metadata")


@router.get("/{workspace}/datasets")
def datasets_page(
    request: Request, platform: PlatformDep, viewer: ViewerDep, offset: Annotated[int, Query(ge=0)] = 0
) -> Response:
    """All datasets, newest first."""
    page = page_at(offset)
    with platform.database.read() as session:
        found, total = service.page_of(session, viewer.workspace_id, page.limit, page.offset)
        people = {d.creator_id: session.get(User, d.creator_id) for d in found}
        items = [
            service.body(d, person.name if (person := people[d.creator_id]) else None, None) for d in found
        ]
    data = {"datasets": items, "page": {"limit": page.limit, "offset": page.offset, "total": total}}
    return render(request, "datasets.html", data, viewer=viewer, room="datasets")


@router.get("/{workspace}/datasets/{name_or_id}")
def dataset_page(
    request: Request,
    platform: PlatformDep,
    viewer: ViewerDep,
    name_or_id: str,
    before: Annotated[int | None, Query(ge=1)] = None,
) -> Response:
    """One dataset: first rows and log; `before` shows older log lines."""
    with platform.database.read() as session:
        dataset = service.find(session, viewer.workspace_id, name_or_id)
        creator = session.get(User, dataset.creator_id)
        preview = dataset.preview or []
        data: dict[str, Any] = {
            "dataset": service.body(dataset, creator.name if creator else None, None),
            "preview": preview,
            "columns": [c for c in COLUMNS if any(c in row for row in preview)],
            "logs": newest_lines(session, dataset.id, before),
        }
        older = has_older(session, dataset.id, data["logs"])
    return render(
        request,
        "dataset.html",
        data,
        viewer=viewer,
        room="datasets",
        older=older,
        following=before is None,
        waiting=dataset.status in ("pending", "processing"),
    )

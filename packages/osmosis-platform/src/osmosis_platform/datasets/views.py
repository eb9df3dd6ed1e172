"""Dataset pages."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from osmosis_platform.accounts.models import User
from osmosis_platform.context import Platform
from osmosis_platform.datasets import listing, service
from osmosis_platform.datasets import rows as dataset_rows
from osmosis_platform.datasets.models import Dataset
from osmosis_platform.http.paging import LARGEST, Offset
from osmosis_platform.http.scope import PlatformDep
from osmosis_platform.runs.log_view import has_older, newest_lines
from osmosis_platform.web.pages import render
from osmosis_platform.web.viewer import ViewerDep, page_at

router = APIRouter(include_in_schema=False)
COLUMNS = ("system_prompt", "user_prompt", "ground_truth", "metadata")
ROWS_SHOWN = 25


@router.get("/{workspace}/datasets")
def datasets_page(
    request: Request,
    platform: PlatformDep,
    viewer: ViewerDep,
    offset: Offset = 0,
    q: Annotated[str, Query(max_length=200)] = "",
    status: Annotated[str, Query(max_length=40)] = "",
    sort: listing.Sort = "newest",
) -> Response:
    """Datasets: `q` (part of a name) and `status` choose, `sort` orders them."""
    page = page_at(offset)
    chosen = listing.DatasetFilter(q.strip(), status, sort)
    with platform.database.read() as session:
        found, total = listing.filtered_datasets(session, viewer.workspace_id, chosen, page)
        people = {d.creator_id: session.get(User, d.creator_id) for d in found}
        items = [
            service.body(d, person.name if (person := people[d.creator_id]) else None, None) for d in found
        ]
    data = {
        "datasets": items,
        "page": {"limit": page.limit, "offset": page.offset, "total": total},
        "filter": {**asdict(chosen), "query": chosen.query()},
        "choices": {"status": list(listing.STATUSES)},
    }
    path = f"/{viewer.workspace}/datasets"
    limit = platform.settings.max_upload_bytes
    return render(request, "datasets.html", data, viewer=viewer, room="datasets", path=path, limit=limit)


@router.get("/{workspace}/datasets/{name_or_id}")
def dataset_page(
    request: Request,
    platform: PlatformDep,
    viewer: ViewerDep,
    name_or_id: str,
    before: Annotated[int | None, Query(ge=1, le=LARGEST)] = None,
    q: Annotated[str, Query(max_length=500)] = "",
    offset: Offset = 0,
) -> Response:
    """One dataset: rows (`q` chooses those that hold a text), columns, versions and log; `before` shows older log lines."""
    with platform.database.read() as session:
        dataset = service.find(session, viewer.workspace_id, name_or_id)
        creator = session.get(User, dataset.creator_id)
        shown = _rows(platform, dataset, q, offset)
        data: dict[str, Any] = {
            "dataset": service.body(dataset, creator.name if creator else None, None),
            "preview": shown.rows,
            "columns": [c for c in COLUMNS if any(c in row for row in shown.rows)],
            "page": {"limit": ROWS_SHOWN, "offset": offset, "total": shown.total},
            "filter": {"q": q, "looked_at": shown.looked_at},
            "column_facts": _column_facts(platform, dataset),
            "versions": listing.versions(session, dataset),
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


def _rows(platform: Platform, dataset: Dataset, q: str, offset: int) -> dataset_rows.Rows:
    if dataset.rows_sha256 is None:  # not checked yet, or in error
        preview = [{"row_index": index, **row} for index, row in enumerate(dataset.preview or [])]
        return dataset_rows.Rows(preview[offset : offset + ROWS_SHOWN], len(preview), len(preview))
    path = platform.blobs.path(dataset.rows_sha256)
    if q:
        return dataset_rows.rows_with(path, q, offset, ROWS_SHOWN)
    return dataset_rows.rows_at(path, offset, ROWS_SHOWN)


def _column_facts(platform: Platform, dataset: Dataset) -> list[dict[str, Any]]:
    return dataset_rows.column_facts(platform.blobs.path(dataset.rows_sha256)) if dataset.rows_sha256 else []

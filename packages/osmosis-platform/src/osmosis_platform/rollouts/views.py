"""The rollouts page: the catalogue per branch, and what the latest pushes brought."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from sqlalchemy import select

from osmosis_platform.http.paging import Offset, page_of
from osmosis_platform.http.scope import PlatformDep
from osmosis_platform.repositories.models import Repository, SyncEvent
from osmosis_platform.repositories.views import sync_row
from osmosis_platform.rollouts.api import rollout_body
from osmosis_platform.rollouts.models import Rollout
from osmosis_platform.web.addresses import query_of
from osmosis_platform.web.pages import render
from osmosis_platform.web.viewer import ViewerDep, page_at

router = APIRouter(include_in_schema=False)
SYNCS_SHOWN = 5
ORDERS: dict[str, tuple[Any, ...]] = {
    "name": (Rollout.name, Rollout.id),
    "newest": (Rollout.last_synced_at.desc(), Rollout.name),
}


@router.get("/{workspace}/rollouts")
def rollouts_page(
    request: Request,
    platform: PlatformDep,
    viewer: ViewerDep,
    branch: str | None = None,
    q: Annotated[str, Query(max_length=200)] = "",
    sort: Literal["name", "newest"] = "name",
    offset: Offset = 0,
) -> Response:
    """Rollouts of a branch (the default branch first): `q` is part of a name or description, `sort` orders them."""
    page = page_at(offset)
    with platform.database.read() as session:
        repository = session.scalar(select(Repository).where(Repository.workspace_id == viewer.workspace_id))
        chosen = branch or (repository.default_branch if repository else "main")
        mine = Rollout.workspace_id == viewer.workspace_id
        branches = list(
            session.scalars(select(Rollout.branch).where(mine).distinct().order_by(Rollout.branch).limit(50))
        )
        query = select(Rollout).where(mine, Rollout.branch == chosen).order_by(*ORDERS[sort])
        if q.strip():
            text = q.strip()
            named = Rollout.name.icontains(text, autoescape=True)
            query = query.where(named | Rollout.description.icontains(text, autoescape=True))
        found, total = page_of(session, query, page)
        name = repository.full_name if repository else ""
        data: dict[str, Any] = {
            "has_repository": repository is not None,
            "branch": chosen,
            "branches": branches,
            "rollouts": [rollout_body(r, name) for r in found],
            "syncs": [],
            "page": {"limit": page.limit, "offset": page.offset, "total": total},
            "filter": {
                "q": q,
                "sort": sort,
                "query": query_of({"branch": branch or "", "q": q, "sort": sort}, sort="name"),
            },
        }
        if repository:
            syncs = session.scalars(
                select(SyncEvent)
                .where(SyncEvent.repository_id == repository.id)
                .order_by(SyncEvent.created_at.desc())
                .limit(SYNCS_SHOWN)
            )
            data["syncs"] = [sync_row(event) for event in syncs]
    return render(request, "rollouts.html", data, viewer=viewer, room="rollouts")

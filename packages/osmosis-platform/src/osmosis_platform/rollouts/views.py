"""The rollouts page: the catalogue per branch, and sync history."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from sqlalchemy import select

from osmosis_platform.http.scope import PlatformDep
from osmosis_platform.repositories.models import Repository, SyncEvent
from osmosis_platform.rollouts.api import rollout_body
from osmosis_platform.rollouts.models import Rollout
from osmosis_platform.web.pages import render
from osmosis_platform.web.viewer import ViewerDep

router = APIRouter(include_in_schema=False)
MAX_SHOWN = 200
SYNCS_SHOWN = 20


@router.get("/{workspace}/rollouts")
def rollouts_page(
    request: Request, platform: PlatformDep, viewer: ViewerDep, branch: str | None = None
) -> Response:
    """Rollouts of a branch (the default branch first)."""
    with platform.database.read() as session:
        repository = session.scalar(select(Repository).where(Repository.workspace_id == viewer.workspace_id))
        chosen = branch or (repository.default_branch if repository else "main")
        mine = Rollout.workspace_id == viewer.workspace_id
        branches = list(
            session.scalars(select(Rollout.branch).where(mine).distinct().order_by(Rollout.branch).limit(50))
        )
        found = session.scalars(
            select(Rollout).where(mine, Rollout.branch == chosen).order_by(Rollout.name).limit(MAX_SHOWN)
        )
        name = repository.full_name if repository else ""
        data: dict[str, Any] = {
            "branch": chosen,
            "branches": branches,
            "rollouts": [rollout_body(r, name) for r in found],
            "syncs": [],
        }
        if repository:
            syncs = session.scalars(
                select(SyncEvent)
                .where(SyncEvent.repository_id == repository.id)
                .order_by(SyncEvent.created_at.desc())
                .limit(SYNCS_SHOWN)
            )
            data["syncs"] = [_sync(event) for event in syncs]
    return render(request, "rollouts.html", data, viewer=viewer, room="rollouts")


def _sync(event: SyncEvent) -> dict[str, Any]:
    return {
        "branch": event.branch,
        "status": event.status,
        "commit_sha": event.commit_sha,
        "message": event.message,
        "error": event.error,
        "rollouts_found": event.rollouts_found,
        "created_at": event.created_at.isoformat(),
    }

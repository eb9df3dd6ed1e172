"""`GET /api/cli/rollouts`: the catalogue of one branch."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from sqlalchemy import func, select

from osmosis_platform.http.paging import PageQuery
from osmosis_platform.http.scope import PlatformDep, Scope
from osmosis_platform.rollouts.models import Rollout

router = APIRouter(prefix="/api/cli/rollouts", tags=["rollouts"])


@router.get("")
def list_rollouts(
    platform: PlatformDep, scope: Scope, page: PageQuery, branch: str | None = None
) -> dict[str, Any]:
    """Rollouts of `branch` (default: the repository's default branch), by name."""
    if scope.repository is None:
        return page.body("rollouts", [], 0)
    of_branch = (
        Rollout.workspace_id == scope.workspace.id,
        Rollout.branch == (branch or scope.repository.default_branch),
    )
    with platform.database.read() as session:
        total = session.scalar(select(func.count()).select_from(Rollout).where(*of_branch)) or 0
        found = session.scalars(
            select(Rollout).where(*of_branch).order_by(Rollout.name).limit(page.limit).offset(page.offset)
        )
        items = [rollout_body(rollout, scope.repository.full_name) for rollout in found]
    return page.body("rollouts", items, total)


def rollout_body(rollout: Rollout, repository: str) -> dict[str, Any]:
    """A rollout on the wire."""
    return {
        "id": rollout.id,
        "name": rollout.name,
        "description": rollout.description,
        "repo_full_name": repository,
        "branch": rollout.branch,
        "last_synced_commit_sha": rollout.commit_sha,
        "last_synced_at": rollout.last_synced_at.isoformat(),
        "created_at": rollout.created_at.isoformat(),
        "is_active": rollout.is_active,
    }

"""The workspace's home page."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from sqlalchemy import and_, func, or_, select
from sqlalchemy.orm import Session

from osmosis_platform.adapters.service import count_active
from osmosis_platform.context import Platform
from osmosis_platform.datasets.models import Dataset
from osmosis_platform.http.scope import PlatformDep
from osmosis_platform.repositories.models import Repository
from osmosis_platform.repositories.service import clone_url
from osmosis_platform.runs.models import Run
from osmosis_platform.runs.pages import run_row
from osmosis_platform.web.pages import render
from osmosis_platform.web.viewer import Viewer, ViewerDep

router = APIRouter(include_in_schema=False)

RECENT = 10
ATTENTION = 5
_NOTHING_GRADED = and_(
    Run.kind == "eval",
    Run.status == "finished",
    Run.results["graded"].as_integer() == 0,
    Run.results["failed"].as_integer() > 0,
)


@router.get("/{workspace}")
def home(request: Request, platform: PlatformDep, viewer: ViewerDep) -> Response:
    """What is running, what needs attention, recent results."""
    with platform.database.read() as session:
        mine = Run.workspace_id == viewer.workspace_id
        newest = list(session.scalars(select(Run).where(mine).order_by(Run.created_at.desc()).limit(RECENT)))
        troubled = session.scalars(
            select(Run)
            .where(mine, or_(Run.status.in_(("failed", "crashed")), _NOTHING_GRADED))
            .order_by(Run.created_at.desc())
            .limit(ATTENTION)
        )
        data = {
            "workspace": viewer.workspace,
            "counts": _counts(session, platform, viewer.workspace_id),
            "recent": [run_row(run, viewer.workspace, None, None) for run in newest],
            "attention": [_trouble(run, viewer.workspace) for run in troubled],
            "repository": _repository(session, platform, viewer),
        }
    return render(request, "home.html", data, viewer=viewer, room="")


def _trouble(run: Run, workspace: str) -> dict[str, Any]:
    row = run_row(run, workspace, None, None)
    if run.status == "finished" and run.results:
        row["error"] = f"Nothing was graded, and {run.results['failed']} attempts failed."
    return row


def _counts(session: Session, platform: Platform, workspace_id: str) -> dict[str, int]:
    by: dict[tuple[str, str], int] = {
        (kind, status): number
        for kind, status, number in session.execute(
            select(Run.kind, Run.status, func.count())
            .where(Run.workspace_id == workspace_id)
            .group_by(Run.kind, Run.status)
        )
    }
    datasets = select(func.count()).select_from(Dataset)
    return {
        "running": sum(n for (_, status), n in by.items() if status == "running"),
        "pending": sum(n for (_, status), n in by.items() if status == "pending"),
        "evaluations": sum(n for (kind, _), n in by.items() if kind == "eval"),
        "trainings": sum(n for (kind, _), n in by.items() if kind == "train"),
        "datasets": session.scalar(
            datasets.where(Dataset.workspace_id == workspace_id, Dataset.deleted_at.is_(None))
        )
        or 0,
        "deployed": count_active(session, workspace_id),
        "max_deployed": platform.settings.max_active_deployments,
    }


def _repository(session: Session, platform: Platform, viewer: Viewer) -> dict[str, Any] | None:
    repository = session.scalar(select(Repository).where(Repository.workspace_id == viewer.workspace_id))
    if repository is None:
        return None
    url = platform.settings.resolved_public_url
    return {
        "full_name": repository.full_name,
        "clone_url": clone_url(url, repository),
        "platform_url": url,
    }

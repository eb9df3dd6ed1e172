"""What webhooks tell about a run that ended."""

from __future__ import annotations

from typing import Any

from sqlalchemy import and_, func, select
from sqlalchemy.orm import Session

from osmosis_platform.datasets.models import Dataset
from osmosis_platform.runs.models import Run, RunMetric
from osmosis_platform.webhooks.service import announce
from osmosis_platform.workspaces.models import Workspace

_EVENT = {"eval": ("eval_run.completed", "evaluation"), "train": ("training_run.completed", "training")}
# What receivers are told; a run that crashed or was killed has failed for them.
_STATUS = {"finished": "finished", "stopped": "stopped"}


def announce_end(session: Session, run: Run) -> None:
    """Queue the event of a run that just ended."""
    event, room = _EVENT[run.kind]
    workspace = session.get_one(Workspace, run.workspace_id)
    announce(
        session,
        run.workspace_id,
        event,
        subject=run.name,
        page=f"/{workspace.name}/{room}/{run.id}",
        data=lambda: _data(session, run),
    )


def _data(session: Session, run: Run) -> dict[str, Any]:
    dataset = session.get(Dataset, run.dataset_id) if run.dataset_id else None
    started, ended = run.started_at, run.completed_at
    if run.kind == "train":
        metrics: dict[str, Any] = _latest(session, run.id)
    else:
        metrics = {key: value for key, value in (run.results or {}).items() if key != "failures"}
    return {
        "id": run.id,
        "name": run.name,
        "status": _STATUS.get(run.status, "failed"),
        "started_at": started.isoformat() if started else None,
        "completed_at": ended.isoformat() if ended else None,
        "duration_seconds": int((ended - started).total_seconds()) if started and ended else 0,
        "model_name": run.model_path,
        "dataset": {"id": dataset.id, "name": dataset.name} if dataset else None,
        "rollout": {"id": run.rollout_id, "name": run.rollout_name} if run.rollout_id else None,
        "latest_metrics": metrics,
    }


def _latest(session: Session, run_id: str) -> dict[str, float]:
    """The newest value of each metric."""
    mine = RunMetric.run_id == run_id
    newest = (
        select(RunMetric.key, func.max(RunMetric.step).label("step"))
        .where(mine)
        .group_by(RunMetric.key)
        .subquery()
    )
    at = and_(RunMetric.key == newest.c.key, RunMetric.step == newest.c.step)
    query = select(RunMetric.key, RunMetric.value).join(newest, at).where(mine).order_by(RunMetric.key)
    return {row.key: row.value for row in session.execute(query)}

"""What evaluations and trainings share: finding, listing, stopping, metrics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

from sqlalchemy import select
from sqlalchemy.orm import Session

from osmosis_platform.accounts.models import User
from osmosis_platform.audit.service import record
from osmosis_platform.context import Platform
from osmosis_platform.db.types import new_id, utc_now
from osmosis_platform.errors import Conflict, NotFound
from osmosis_platform.runs.endings import announce_end
from osmosis_platform.runs.models import TERMINAL, LogLine, Run, RunSecret
from osmosis_platform.runs.series import Summary
from osmosis_platform.runs.status import transition
from osmosis_platform.runs.wire import cut

Kind = Literal["eval", "train"]
NOUNS = {"eval": "Evaluation run", "train": "Training run"}


def find_run(session: Session, workspace_id: str, kind: Kind, name_or_id: str) -> Run:
    """The run of that name or id in the workspace; raises NotFound."""
    query = select(Run).where(Run.workspace_id == workspace_id, Run.kind == kind)
    run = session.scalar(query.where(Run.id == name_or_id)) or session.scalar(
        query.where(Run.name == name_or_id)
    )
    if run is None:
        raise NotFound(f"{NOUNS[kind]} not found: {name_or_id}")
    return run


def job_key(run: Run) -> str:
    """The dedupe key of the job that executes a run; each retry is a round, and so a job, of its own."""
    return f"run:{run.id}:{run.round}"


def request_stop(session: Session, platform: Platform, run: Run, user: User) -> str:
    """Ask a run to stop; returns what to answer: `stopping`, or `stopped` when it is already.

    A run that waits is stopped at once; a running one by its supervisor, after the worker saved what it has. Raises Conflict for
    a run that ended otherwise.
    """
    if run.status == "stopped":
        return "stopped"
    if run.status in TERMINAL:
        raise Conflict(f"Run {run.name} is {run.status}; there is nothing to stop.", code="RUN_ENDED")
    if run.stop_requested_at is None:
        record(
            session,
            f"{run.kind}.stop",
            run.name,
            user_id=user.id,
            workspace_id=run.workspace_id,
            run_id=run.id,
        )
    run.stop_requested_at = run.stop_requested_at or utc_now()
    if run.status == "running":
        log(session, run.id, "Stop requested.", step="runner")
        return "stopping"
    finish(session, run, "stopped")
    log(session, run.id, "Stopped before it started.", step="runner")
    job = platform.jobs.find(session, job_key(run))
    if job is not None:
        platform.jobs.request_cancel(session, job.id)
    return "stopped"


def finish(
    session: Session, run: Run, status: str, *, error: str | None = None, error_type: str | None = None
) -> bool:
    """Move a run to a terminal status and forget the secret values given for it. False when it was there already."""
    changed = transition(run, status, error=error, error_type=error_type)
    if changed:
        announce_end(session, run)
    for secret in session.scalars(select(RunSecret).where(RunSecret.run_id == run.id)):
        session.delete(secret)
    return changed


def log(
    session: Session,
    owner_id: str,
    message: str,
    *,
    level: str = "info",
    step: str = "",
    details: dict[str, Any] | None = None,
) -> None:
    """Add a line of the platform's own to a log."""
    session.add(
        LogLine(
            owner_id=owner_id,
            event_id=new_id(),
            timestamp=utc_now(),
            level=level,
            step=step,
            message=cut(message),
            details=details,
        )
    )


def metric_summaries(found: Sequence[Summary]) -> list[dict[str, Any]]:
    """First, last, change, least and greatest of each metric."""
    return [
        {
            "key": metric.key,
            "title": title(metric.key),
            "initial": metric.first,
            "latest": metric.latest,
            "delta": _finite(metric.latest - metric.first),
            "min": metric.low,
            "max": metric.high,
        }
        for metric in found
    ]


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None  # JSON has no infinity


_TITLES = {
    "rollout/raw_reward": "Training Reward",
    "eval/validation/reward": "Validation Reward",
    "train/entropy_loss": "Model Entropy",
    "rollout/response_lengths": "Response Length",
    "rollout/total_lengths": "Total Length",
    "rollout/truncated_ratio": "Truncation Ratio",
}


def title(key: str) -> str:
    """A metric's name for people."""
    return _TITLES.get(key) or key.rsplit("/", 1)[-1].replace("_", " ").title()


def duration_ms(run: Run) -> int | None:
    """How long the run has been running, or ran; None before it started."""
    if run.started_at is None:
        return None
    # Never negative: the moments of an imported run are those of another machine's clock.
    return max(0, int(((run.completed_at or utc_now()) - run.started_at).total_seconds() * 1000))


def page_url(platform: Platform, workspace_name: str, run: Run) -> str:
    """The address of the run's page."""
    room = "evaluation" if run.kind == "eval" else "training"
    return f"{platform.settings.resolved_public_url}/{workspace_name}/{room}/{run.id}"

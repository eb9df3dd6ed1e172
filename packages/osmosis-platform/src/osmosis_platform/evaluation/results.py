"""Results of an evaluation, computed from its finished attempts by the same code as on a laptop."""

from __future__ import annotations

import time
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from osmosis_ai.eval.results import metrics_document, summarise
from osmosis_platform.datasets.models import Dataset
from osmosis_platform.runs.models import Run, RunAttempt
from osmosis_platform.runs.service import duration_ms

# Adding up a huge evaluation takes long: then it may take at most this share of the time while the run is going.
_SHARE = 0.1
_QUICK_SECONDS = 0.05
_REASONS = 5
_REASON_LENGTH = 300
_due: dict[str, float] = {}
_took: dict[str, float] = {}


def refresh_results(session: Session, run: Run) -> None:
    """Bring `run.results` and `run.reward` up to date with the attempts finished so far."""
    session.flush()
    run.results = {**_summary(session, run)["results"], "failures": _failures(session, run)}
    run.reward = run.results["score"]
    _due.pop(run.id, None)
    _took.pop(run.id, None)


def refresh_results_soon(session: Session, run: Run) -> None:
    """The same while attempts come in, but less often where adding up takes long; the end of a run refreshes for sure."""
    if time.monotonic() < _due.get(run.id, 0.0):
        return
    before = _took.get(run.id, 0.0)  # the first time is no measure: queries are compiled then
    started = time.thread_time()  # a busy machine makes nothing expensive
    refresh_results(session, run)
    took = _took[run.id] = time.thread_time() - started
    if min(before, took) > _QUICK_SECONDS:
        _due[run.id] = time.monotonic() + took / _SHARE


def _summary(session: Session, run: Run) -> dict[str, dict[str, Any]]:
    columns = (RunAttempt.row_index, RunAttempt.status, RunAttempt.reward, RunAttempt.tokens)
    rows = session.execute(select(*columns).where(RunAttempt.run_id == run.id))
    settings = run.config.get("evaluation", {})
    dataset = session.get(Dataset, run.dataset_id) if run.dataset_id else None
    total_rows = (run.local_run or {}).get("total_dataset_rows") or (dataset.row_count if dataset else None)
    found = summarise(
        [row._asdict() for row in rows],
        n=settings.get("n") or 1,
        pass_threshold=settings["pass_threshold"],
        sampled_rows=run.sampled_rows or 0,
        total_rows=total_rows or 0,
        duration_ms=duration_ms(run),
    )
    if run.local_run is not None:
        found["results"]["resumed_count"] = run.local_run.get("resumed_count", 0)
    return found


def _failures(session: Session, run: Run) -> list[dict[str, Any]]:
    """The most frequent reasons of failed attempts: `error_type`, `error_message` (cut), `count`."""
    count = func.count().label("count")
    message = func.substr(RunAttempt.error_message, 1, _REASON_LENGTH).label("error_message")
    query = (
        select(RunAttempt.error_type, message, count)
        .where(RunAttempt.run_id == run.id, RunAttempt.status == "failed")
        .group_by(RunAttempt.error_type, message)
        .order_by(count.desc(), RunAttempt.error_type, message)
        .limit(_REASONS)
    )
    return [dict(row._mapping) for row in session.execute(query)]


def metrics(session: Session, run: Run) -> dict[str, Any]:
    """The answer of the metrics endpoint: counts, reward statistics, pass@k as a list.

    While the run is going, `total_samples` is how many attempts there will be.
    """
    found = _summary(session, run)["metrics"]
    settings = run.config.get("evaluation", {})
    expected = (run.sampled_rows or 0) * (settings.get("n") or 1)
    found["overview"]["total_samples"] = max(found["overview"]["total_samples"], expected)
    return {"eval_run_id": run.id, "status": run.status, **found}


def metrics_file(session: Session, run: Run) -> dict[str, Any]:
    """`metrics.json`, as it is downloaded."""
    dataset = session.get(Dataset, run.dataset_id) if run.dataset_id else None
    return metrics_document(
        {
            "id": run.id,
            "status": run.status,
            "name": run.name,
            "dataset_name": dataset.name if dataset else (run.local_run or {}).get("dataset_name"),
            "model_name": run.model_path,
            "rollout_name": run.rollout_name,
            "duration_ms": duration_ms(run),
            "started_at": run.started_at.isoformat() if run.started_at else None,
            "completed_at": run.completed_at.isoformat() if run.completed_at else None,
        },
        metrics(session, run),
    )

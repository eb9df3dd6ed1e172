"""Results of an evaluation, computed from its finished attempts by the same code as on a laptop."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from osmosis_platform.datasets.models import Dataset
from osmosis_platform.evaluation.summary import summarise_attempts
from osmosis_platform.runs.models import Run, RunAttempt
from osmosis_platform.runs.service import duration_ms

_OVERVIEW = (
    "total_samples",
    "completed_samples",
    "graded",
    "passed",
    "failed",
    "skipped",
    "pass_rate",
    "pass_threshold",
    "tokens_used",
)


def refresh_results(session: Session, run: Run) -> None:
    """Bring `run.results` up to date with the attempts finished so far."""
    session.flush()
    rows = session.execute(
        select(
            RunAttempt.row_index,
            RunAttempt.run_index,
            RunAttempt.status,
            RunAttempt.reward,
            RunAttempt.tokens,
        ).where(RunAttempt.run_id == run.id)
    )
    settings = run.config.get("evaluation", {})
    summary = summarise_attempts(
        [row._asdict() for row in rows],
        n_runs=settings.get("n", 1),
        pass_threshold=settings.get("pass_threshold", 0.5),
    )
    dataset = session.get(Dataset, run.dataset_id)
    stats = dict(summary.get("reward_stats") or {})
    points = summary.get("pass_at_k") or []
    if points:
        stats["pass_at_k"] = {str(point["k"]): point["value"] for point in points}
    run.results = {
        **{name: summary.get(name) for name in _OVERVIEW},
        "total_runs": summary["total_samples"],
        "sampled_rows": run.sampled_rows,
        "score": stats.get("mean"),
        "total_tokens": summary.get("tokens_used"),
        "total_dataset_rows": dataset.row_count if dataset else None,
        "resumed_count": 0,
        "reward_stats": stats,
    }
    run.reward = stats.get("mean")


def overview(run: Run) -> dict[str, Any]:
    """The counts and rates of a run, and how long it took."""
    results = run.results or {}
    settings = run.config.get("evaluation", {})
    expected = (run.sampled_rows or 0) * settings.get("n", 1)
    found = {name: results.get(name) for name in _OVERVIEW}
    return {
        "duration_ms": duration_ms(run),
        **found,
        "total_samples": max(expected, found["total_samples"] or 0),
        "pass_threshold": settings.get("pass_threshold"),
    }


def metrics(run: Run) -> dict[str, Any]:
    """The answer of the metrics endpoint; pass@k is a list here."""
    return {"eval_run_id": run.id, "status": run.status, "overview": overview(run), **_statistics(run)}


def _statistics(run: Run) -> dict[str, Any]:
    stats = dict((run.results or {}).get("reward_stats") or {})
    points = stats.pop("pass_at_k", {})
    return {
        "reward_stats": stats,
        "pass_at_k": [
            {"k": int(k), "value": value}
            for k, value in sorted(points.items(), key=lambda item: int(item[0]))
        ],
    }


def metrics_document(session: Session, run: Run) -> dict[str, Any]:
    """`metrics.json`, as it is downloaded."""
    dataset = session.get(Dataset, run.dataset_id)
    return {
        "eval_run": {
            "id": run.id,
            "status": run.status,
            "name": run.name,
            "dataset_name": dataset.name if dataset else None,
            "model_name": run.model_path,
            "rollout_name": run.rollout_name,
            "duration_ms": duration_ms(run),
            "started_at": run.started_at.isoformat() if run.started_at else None,
            "completed_at": run.completed_at.isoformat() if run.completed_at else None,
        },
        "summary": {**overview(run), **_statistics(run)},
    }

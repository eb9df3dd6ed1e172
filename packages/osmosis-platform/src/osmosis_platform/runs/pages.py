"""What pages show of runs: plain values, the same for HTML and JSON."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from osmosis_platform.adapters.checkpoints import best_step, validation_rewards
from osmosis_platform.adapters.models import LoraModel
from osmosis_platform.hugging_face import uploads
from osmosis_platform.runs.attempt_facts import attempt_facts
from osmosis_platform.runs.facts import RunFacts
from osmosis_platform.runs.models import TERMINAL, Run, RunAttempt
from osmosis_platform.runs.service import duration_ms

KIND_NAMES = {"eval": "Evaluation", "train": "Training"}
ROOM = {"eval": "evaluation", "train": "training"}


def run_row(run: Run, workspace: str, dataset: str | None, creator: str | None) -> dict[str, Any]:
    """One run in a list."""
    return {
        "id": run.id,
        "name": run.name,
        "kind": run.kind,
        "kind_name": KIND_NAMES[run.kind],
        "status": run.status,
        "rollout": run.rollout_name,
        "model": run.model_path,
        "dataset": dataset,
        "creator": creator,
        "reward": _reward(run),
        "progress": progress(run),
        "error": run.error,
        "created_at": run.created_at.isoformat(),
        "url": f"/{workspace}/{ROOM[run.kind]}/{run.id}",
    }


def run_detail(facts: RunFacts, workspace: str) -> dict[str, Any]:
    """One run on its own page."""
    run = facts.run
    results = run.results or {}
    graded = results.get("graded")
    return {
        **run_row(run, workspace, facts.dataset_name, facts.creator_name),
        "path": f"/{workspace}/{ROOM[run.kind]}/{run.id}",
        "list_path": f"/{workspace}/{ROOM[run.kind]}",
        "again": run.local_run is None,
        "final": run.status in TERMINAL,
        "stop_requested": run.stop_requested_at is not None,
        "phase": run.phase,
        "duration_ms": duration_ms(run),
        "remaining_ms": remaining_ms(run),
        "examples_processed": run.examples_processed,
        "reward_note": interval_note(results),
        "pass_rate": results.get("pass_rate") if graded else None,
        "pass_note": f"{results.get('passed', 0)} of {graded} graded" if graded else "",
        "results": results,
        "dataset_id": run.dataset_id,
        "entrypoint": run.entrypoint,
        "branch": run.branch,
        "commit_sha": run.commit_sha,
        "config": {k: v for k, v in run.config.items() if k != "experiment"},
        "env": run.env,
        "secret_scopes": run.secret_scopes,
        "started_at": run.started_at.isoformat() if run.started_at else None,
        "completed_at": run.completed_at.isoformat() if run.completed_at else None,
    }


def interval_note(results: dict[str, Any]) -> str:
    """The interval of the mean reward. Where every reward lies between 0 and 1 it is cut to these: only values that such a mean cannot have
    are taken away, so it covers the truth as often as before."""
    interval = (results.get("confidence") or {}).get("score")
    if not interval:
        return ""
    low, high, stats = interval["low"], interval["high"], results.get("reward_stats") or {}
    if stats.get("min", -1) >= 0 and stats.get("max", 2) <= 1:
        low, high = max(low, 0.0), min(high, 1.0)
    return f"95 % interval {low:.2f} to {high:.2f}"


def _reward(run: Run) -> float | None:
    if run.reward is None and run.results:
        score = run.results.get("score")
        return float(score) if score is not None else None
    return run.reward


def progress(run: Run) -> dict[str, Any]:
    """`done`, `total` (None when unknown), their `unit` and a text."""
    if run.kind == "train":
        done, total, unit = run.current_step or 0, run.total_steps, "steps"
    else:
        attempts = run.config.get("evaluation", {}).get("n") or 1
        done, unit = run.total_runs or 0, "attempts"
        total = run.sampled_rows * attempts if run.sampled_rows else None
    if total is None:
        return {
            "done": done,
            "total": None,
            "unit": unit,
            "text": "waiting" if run.status == "pending" else f"{done} {unit}",
        }
    done = min(done, total)
    return {"done": done, "total": total, "unit": unit, "text": f"{done} / {total} {unit}"}


def remaining_ms(run: Run) -> float | None:
    """How long a running run will need if it goes on as it went; None while nothing is done or the end is unknown."""
    spent, made = duration_ms(run), progress(run)
    if run.status != "running" or not spent or not made["done"] or made["total"] is None:
        return None
    return float(spent * (made["total"] - made["done"]) / made["done"])


def checkpoints(session: Session, run: Run) -> list[dict[str, Any]]:
    """LoRA models of a training run, last first."""
    found = session.scalars(
        select(LoraModel).where(LoraModel.run_id == run.id).order_by(LoraModel.step.desc()).limit(100)
    ).all()
    uploaded = uploads.by_model(session, [model.id for model in found])
    measured = validation_rewards(session, run)
    best = best_step(measured)
    return [
        {
            "id": m.id,
            "name": m.name,
            "step": m.step,
            "reward": m.reward,
            "validation_reward": measured.get(m.step),
            "best": m.step == best,
            "deployment_status": m.deployment_status,
            **uploads.facts(session, uploaded.get(m.id)),
            "created_at": m.created_at.isoformat(),
        }
        for m in found
    ]


def attempt_row(attempt: RunAttempt) -> dict[str, Any]:
    """One finished attempt."""
    return {**attempt_facts(attempt), "has_trajectory": attempt.trajectory_sha256 is not None}


BINS = 10


def reward_histogram(session: Session, run: Run) -> list[dict[str, Any]]:
    """How the rewards of an evaluation are spread: ten equal bins, `low` to `high`, each with its `count`.

    The bins cover 0 to 1, and further where rewards go further. Empty without rewards.
    """
    query = (
        select(RunAttempt.reward, func.count())
        .where(RunAttempt.run_id == run.id, RunAttempt.reward.is_not(None))
        .group_by(RunAttempt.reward)
    )
    rewards = [(value, number) for value, number in session.execute(query) if value is not None]
    if not rewards:
        return []
    low, high = min(0.0, *(v for v, _ in rewards)), max(1.0, *(v for v, _ in rewards))
    counts = [0] * BINS
    for value, number in rewards:
        counts[min(int((value - low) / (high - low) * BINS), BINS - 1)] += number
    step = (high - low) / BINS
    return [
        {"low": low + i * step, "high": low + (i + 1) * step, "count": number}
        for i, number in enumerate(counts)
    ]


def shown_step(step: dict[str, Any]) -> dict[str, Any]:
    """A step of an ATIF document, reduced to what a reader sees. Tool results carry the name of their tool."""
    metrics = step.get("metrics") or {}
    return {
        "source": step["source"],
        "model_name": step.get("model_name"),
        "timestamp": _moment(step.get("timestamp")),
        "prompt_tokens": _number(metrics.get("prompt_tokens")),
        "completion_tokens": _number(metrics.get("completion_tokens")),
        "cached_tokens": _number(metrics.get("cached_tokens")),
        "reasoning": step.get("reasoning_content") or "",
        "message": _text(step.get("message")),
        "tool_calls": step.get("tool_calls") or [],
        "results": _results(step),
    }


def _moment(text: object) -> str | None:
    """A timestamp of a document that somebody else wrote, or None for what is none."""
    try:
        return datetime.fromisoformat(str(text)).isoformat()
    except ValueError:
        return None


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _results(step: dict[str, Any]) -> list[dict[str, str | None]]:
    names = {call["tool_call_id"]: call["function_name"] for call in step.get("tool_calls") or []}
    found = (step.get("observation") or {}).get("results", [])
    return [{"tool": names.get(r.get("source_call_id")), "content": _text(r.get("content"))} for r in found]


def _text(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(part.get("text") or f"[{part.get('type')}]" for part in content)

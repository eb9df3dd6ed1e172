"""The metrics of an evaluation run as an object."""

from typing import Any

from osmosis_ai.cli import serializers

_OVERVIEW = [
    "total_samples",
    "completed_samples",
    "graded",
    "passed",
    "failed",
    "skipped",
    "pass_rate",
    "pass_threshold",
    "tokens_used",
]


def metrics_object(answer: dict[str, Any], metrics: dict[str, Any]) -> dict[str, Any]:
    """Run and summary of a metrics answer; unknown numbers are left out.

    Raises:
        KeyError, TypeError: the answer is malformed.
    """
    run, overview = answer["eval_run"], metrics["overview"]
    head: dict[str, Any] = {"id": run["id"], "status": metrics["status"]}
    known = {
        "name": run.get("name"),
        "dataset_name": serializers.name_of(answer.get("dataset")),
        "model_name": (answer.get("config") or {}).get("model_path"),
        "rollout_name": serializers.name_of(answer.get("rollout")),
        "duration_ms": overview.get("duration_ms"),
        "started_at": run.get("started_at"),
        "completed_at": run.get("completed_at"),
    }
    head |= {key: value for key, value in known.items() if value is not None}
    summary: dict[str, Any] = {key: overview[key] for key in _OVERVIEW if overview.get(key) is not None}
    if metrics.get("reward_stats"):
        summary["reward_stats"] = metrics["reward_stats"]
    if metrics.get("pass_at_k"):
        summary["pass_at_k"] = [{"k": entry["k"], "value": entry["value"]} for entry in metrics["pass_at_k"]]
    return {"eval_run": head, "summary": summary}

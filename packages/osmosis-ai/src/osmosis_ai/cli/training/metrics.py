"""The metrics of a training run as a document for export."""

from datetime import UTC, datetime
from typing import Any

from osmosis_ai.cli.output import formats

# Names that other tools know these series by; other keys are exported unchanged.
EXPORT_NAMES = {
    "rollout/raw_reward": "training_reward",
    "eval/validation/reward": "validation_reward",
    "train/entropy_loss": "entropy",
    "rollout/response_lengths": "response_length",
    "rollout/total_lengths": "total_length",
    "rollout/truncated_ratio": "truncation_ratio",
}
_SUMMARY = ("initial", "latest", "delta", "min", "max")


def export_document(
    run: dict[str, Any], names: dict[str, str | None], answer: dict[str, Any]
) -> dict[str, Any]:
    """Run, summaries and series of a metrics answer.

    Raises:
        KeyError, TypeError, ValueError: the answer is malformed.
    """
    overview = answer["overview"]
    head: dict[str, Any] = {"id": run["id"], "status": answer["status"]}
    known = {
        "name": run.get("name"),
        "base_model_name": names.get("model"),
        "dataset_name": names.get("dataset"),
        "rollout_name": names.get("rollout"),
        "duration_ms": overview.get("duration_ms"),
        "started_at": run.get("started_at"),
        "completed_at": run.get("completed_at"),
        "rows_processed": overview.get("examples_processed_count"),
        "latest_step": overview.get("latest_step"),
        "total_steps": overview.get("total_steps"),
    }
    head |= {key: value for key, value in known.items() if value is not None}
    return {
        "training_run": head,
        "summary": {
            _name(entry["key"]): {
                part: entry[part] for part in _SUMMARY if formats.is_number(entry.get(part))
            }
            for entry in overview.get("metric_summaries", [])
        },
        "metrics": [
            {
                "key": _name(series["metric_key"]),
                "title": series["title"],
                "data": [_point(p) for p in series.get("data_points", [])],
            }
            for series in answer.get("metrics", [])
        ],
    }


def _name(key: str) -> str:
    return EXPORT_NAMES.get(key, key)


def _point(point: dict[str, Any]) -> dict[str, Any]:
    moment = datetime.fromtimestamp(point["timestamp"] / 1000, UTC)
    return {"step": point["step"], "value": point["value"], "timestamp": moment.isoformat()}

"""The result files of a local evaluation, in the layout of a downloaded run."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from osmosis_ai.eval.local.folder import RunFolder, now, write_json, write_lines
from osmosis_ai.eval.results import metrics_document, summarise

_LINE = (
    "row_index",
    "run_index",
    "rollout_id",
    "trajectory_filename",
    "status",
    "reward",
    "tokens",
    "duration_ms",
    "error_type",
    "error_message",
    "resumed",
)


def write_outputs(folder: RunFolder, *, status: str, resumed: set[tuple[int, int]]) -> dict[str, Any]:
    """Write index, summary, progress and metrics from the finished attempts; the metrics.

    ``status`` is ``finished`` or ``stopped``; ``resumed`` are (row, run) pairs of earlier tries.
    """
    manifest = folder.manifest()
    inputs = manifest["inputs"]
    found = sorted(folder.attempts(), key=lambda attempt: (attempt["row_index"], attempt["run_index"]))
    lines = [_line(attempt, resumed) for attempt in found]
    summary = _summary(inputs, lines, _duration_ms(manifest))
    write_lines(folder.path / "index.jsonl", lines)
    write_lines(folder.path / "summary.jsonl", lines)
    progress = {
        "total_runs": len(lines),
        "sampled_rows": inputs["selected_rows"],
        "total_dataset_rows": inputs["dataset_rows"],
        "status": status,
        "completed_at": now(),
    }
    write_json(folder.path / "progress.json", progress)
    document = metrics_document(
        {
            "id": manifest["local_run_id"],
            "status": status,
            "name": folder.name,
            "dataset_name": inputs["dataset"],
            "model_name": inputs["model_path"],
            "rollout_name": inputs["rollout"],
            "duration_ms": summary["metrics"]["overview"]["duration_ms"],
            "started_at": manifest["created_at"],
            "completed_at": progress["completed_at"],
        },
        summary["metrics"],
    )
    write_json(folder.path / "metrics.json", document)
    return summary


def complete_outputs(folder: RunFolder) -> dict[str, Any] | None:
    """The metrics of an evaluation that is complete and written down already; None when something is left to do."""
    progress, metrics = folder.read_json("progress.json"), folder.read_json("metrics.json")
    inputs, attempts = folder.manifest()["inputs"], folder.attempts()
    if progress is None or metrics is None or progress.get("status") != "finished":
        return None
    if len(attempts) < inputs["selected_rows"] * inputs["n"]:
        return None
    duration = metrics.get("eval_run", {}).get("duration_ms")
    return _summary(inputs, [_line(attempt, set()) for attempt in attempts], duration)


def _summary(
    inputs: Mapping[str, Any], lines: list[dict[str, Any]], duration_ms: float | None
) -> dict[str, Any]:
    return summarise(
        lines,
        n=inputs["n"],
        pass_threshold=inputs["pass_threshold"],
        sampled_rows=inputs["selected_rows"],
        total_rows=inputs["dataset_rows"],
        duration_ms=duration_ms,
    )


def _line(attempt: Mapping[str, Any], resumed: set[tuple[int, int]]) -> dict[str, Any]:
    place = f"row_{attempt['row_index']}_run_{attempt['run_index']}"
    known = {
        **attempt,
        "trajectory_filename": f"trajectories/{place}.json" if attempt.get("trajectory_blob") else None,
        "resumed": True if (attempt["row_index"], attempt["run_index"]) in resumed else None,
    }
    return {key: known[key] for key in _LINE if known.get(key) is not None}


def _duration_ms(manifest: Mapping[str, Any]) -> float:
    started = datetime.fromisoformat(manifest["created_at"])
    return (datetime.fromisoformat(now()) - started).total_seconds() * 1000

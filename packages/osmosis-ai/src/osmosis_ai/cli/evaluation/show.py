"""Listing evaluation runs."""

from typing import Any

from osmosis_ai.cli import serializers
from osmosis_ai.cli.lists import Listing
from osmosis_ai.cli.output import formats
from osmosis_ai.cli.output.results import Column, ListResult


def list_runs(limit: int, everything: bool) -> ListResult:
    """The evaluation runs of the workspace, newest first."""
    return _RUNS.list(limit, everything)


def summary(results: dict[str, Any] | None, config: dict[str, Any] | None) -> dict[str, Any]:
    """Mean reward, pass rate, counts and progress, as far as the results tell."""
    results, config = results or {}, config or {}
    shown: dict[str, Any] = {}
    for target, source in (("avg_reward", "score"), ("pass_rate", "pass_rate")):
        if formats.is_number(results.get(source)):
            shown[target] = results[source]
    shown |= {
        key: results[key]
        for key in ("graded", "passed", "failed", "skipped")
        if formats.is_number(results.get(key))
    }
    runs, rows, attempts = results.get("total_runs"), results.get("sampled_rows"), config.get("n")
    if formats.is_number(runs) and formats.is_number(rows):
        completed, each = int(runs or 0), attempts if isinstance(attempts, int) and attempts > 0 else 1
        shown["progress"] = {
            "completed": completed,
            "total": max(int(rows or 0) * each, completed),
            "unit": "samples",
        }
    return shown


def detail_summary(results: dict[str, Any] | None, config: dict[str, Any] | None) -> dict[str, Any]:
    """The summary with the numbers that only details show."""
    shown = summary(results, config)
    for target, source in (
        ("pass_threshold", "pass_threshold"),
        ("total_tokens", "total_tokens"),
        ("dataset_rows", "total_dataset_rows"),
        ("resumed_count", "resumed_count"),
    ):
        value = (results or {}).get(source)
        if formats.is_number(value):
            shown[target] = value
    return shown


def _item(run: dict[str, Any]) -> dict[str, Any]:
    return {**serializers.eval_run(run), "summary": summary(run.get("results"), run.get("config"))}


_RUNS = Listing(
    "/eval-runs",
    "eval_runs",
    "Evaluation Runs",
    _item,
    [
        Column("Name", lambda item: formats.text(item["name"])),
        Column("Status", lambda item: formats.token(item["status"])),
        Column("Rollout", lambda item: formats.text(item["rollout"])),
        Column("Reward", lambda item: formats.reward(item["summary"].get("avg_reward"))),
        Column("Submitted", lambda item: formats.date(item["created_at"])),
        Column("Submitted By", lambda item: formats.text(item["creator_name"])),
    ],
    when_empty="No evaluation runs yet. Start one with: osmosis eval submit configs/eval/<name>.toml",
    next_text=["Details: osmosis eval info <name>"],
)

"""Listing training runs."""

from typing import Any

from osmosis_ai.cli import serializers
from osmosis_ai.cli.lists import Listing
from osmosis_ai.cli.output import formats
from osmosis_ai.cli.output.results import Column, ListResult


def list_runs(limit: int, everything: bool) -> ListResult:
    """The training runs of the workspace, newest first."""
    return _RUNS.list(limit, everything)


def summary(run: dict[str, Any]) -> dict[str, Any]:
    """Reward and progress, as far as known."""
    shown: dict[str, Any] = {}
    if formats.is_number(run.get("reward")):
        shown["reward"] = run["reward"]
    if formats.is_number(run.get("current_step")) and formats.is_number(run.get("total_steps")):
        completed = max(0, min(run["current_step"], run["total_steps"]))
        shown["progress"] = {"completed": completed, "total": run["total_steps"], "unit": "steps"}
    return shown


def _item(run: dict[str, Any]) -> dict[str, Any]:
    shown = serializers.training_run(run, run.get("model"), run.get("dataset"), run.get("rollout"))
    return {**shown, "summary": summary(run)}


_RUNS = Listing(
    "/training-runs",
    "training_runs",
    "Training Runs",
    _item,
    [
        Column("Name", lambda item: formats.text(item["name"])),
        Column("Status", lambda item: formats.token(item["status"])),
        Column("Base Model", lambda item: formats.text(item["model_name"])),
        Column("Rollout", lambda item: formats.text(item["rollout_name"])),
        Column("Reward", lambda item: formats.reward(item.get("reward"))),
        Column("Submitted", lambda item: formats.date(item["created_at"])),
        Column("Submitted By", lambda item: formats.text(item["creator_name"])),
    ],
    when_empty="No training runs yet. Start one with: osmosis train submit configs/training/<name>.toml",
    next_text=["Details: osmosis train info <name>"],
)

"""Listing training runs."""

from typing import Any

from osmosis_ai.cli import serializers
from osmosis_ai.cli.output import formats
from osmosis_ai.cli.output.messages import status
from osmosis_ai.cli.output.results import Column, ListResult
from osmosis_ai.cli.paging import check_limit, fetch
from osmosis_ai.cli.workspace import open_workspace

_COLUMNS = [
    Column("Name", lambda item: formats.text(item["name"])),
    Column("Status", lambda item: formats.token(item["status"])),
    Column("Base Model", lambda item: formats.text(item["model_name"])),
    Column("Rollout", lambda item: formats.text(item["rollout_name"])),
    Column("Reward", lambda item: formats.reward(item.get("reward"))),
    Column("Submitted", lambda item: formats.date(item["created_at"])),
    Column("Submitted By", lambda item: formats.text(item["creator_name"])),
]


def list_runs(limit: int, everything: bool) -> ListResult:
    """The training runs of the workspace, newest first."""
    check_limit(limit, everything)
    workspace = open_workspace()
    with workspace.client as client, status("Fetching training runs..."):
        page = fetch(client, "/training-runs", "training_runs", limit=limit, everything=everything)
    items = [_item(run) for run in page.items]
    return ListResult(
        items,
        _COLUMNS,
        page.total_count,
        page.has_more,
        page.next_offset,
        title="Training Runs",
        when_empty="No training runs yet. Start one with: osmosis train submit configs/training/<name>.toml",
        next_text=["Details: osmosis train info <name>"],
        extra=workspace.context,
    )


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

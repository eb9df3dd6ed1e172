"""Logs of datasets and runs."""

import shlex
from typing import Any

from osmosis_ai.cli.output import formats
from osmosis_ai.cli.output.messages import status
from osmosis_ai.cli.output.results import Column, ListResult
from osmosis_ai.cli.workspace import open_workspace

_PATHS = {
    "dataset": "datasets",
    "training": "training-runs",
    "eval": "eval-runs",
    "benchmark": "benchmark-runs",
}
_TITLES = {
    "dataset": "Dataset",
    "training": "Training Run",
    "eval": "Evaluation Run",
    "benchmark": "Benchmark Run",
}
_NOUNS = {"training": ["train"], "benchmark": ["benchmark", "runs"]}
_COLUMNS = [
    Column("Time", lambda entry: formats.date(entry["timestamp"], seconds=True)),
    Column("Level", lambda entry: formats.text(entry["level"])),
    Column("Step", lambda entry: formats.text(entry["step"])),
    Column("Message", lambda entry: formats.text(entry["message"])),
]


def show_logs(kind: str, name: str, limit: int, cursor: str | None) -> ListResult:
    """One page of logs, oldest entry first: the newest page, or the page before the one that gave the cursor."""
    workspace = open_workspace()
    from osmosis_ai.platform.api.client import segment

    with workspace.client as client, status("Fetching logs..."):
        answer = client.get(
            f"/{_PATHS[kind]}/{segment(name)}/logs", {"limit": limit, "direction": "older", "cursor": cursor}
        )
    items = [_entry(entry) for entry in answer.get("logs", [])]
    following = answer.get("next_cursor")
    return ListResult(
        items,
        _COLUMNS,
        len(items),
        has_more=following is not None,
        title=f"{_TITLES[kind]} Logs: {name}",
        extra={"next_cursor": following, **workspace.context},
        go_on=f"Older entries: {_next_page(kind, name, limit, str(following))}",
        when_empty="Nothing has been logged yet." if cursor is None else "There are no older entries.",
    )


def _next_page(kind: str, name: str, limit: int, cursor: str) -> str:
    return shlex.join(
        ["osmosis", *_NOUNS.get(kind, [kind]), "logs", name, "--limit", str(limit), "--cursor", cursor]
    )


def _entry(entry: dict[str, Any]) -> dict[str, Any]:
    details = entry.get("details")
    return {
        "timestamp": entry.get("timestamp") or "",
        "level": entry.get("level") or "",
        "step": entry.get("step") or "",
        "message": entry.get("message") or "",
        "details": details if isinstance(details, dict) else None,
    }

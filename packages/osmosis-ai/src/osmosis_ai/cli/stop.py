"""Stopping runs."""

from dataclasses import dataclass
from typing import Any

from osmosis_ai.cli.output.messages import status
from osmosis_ai.cli.output.results import OperationResult
from osmosis_ai.cli.prompts import Question, confirmed
from osmosis_ai.cli.workspace import open_workspace


@dataclass(frozen=True, slots=True)
class _Kind:
    operation: str
    path: str
    noun: str
    info: str
    key: str | None = None  # of the run in an answer, where a run is stopped by its id


_KINDS = {
    "training": _Kind("train.stop", "training-runs", "training run", "train info"),
    "eval": _Kind("eval.stop", "eval-runs", "evaluation run", "eval info"),
    "benchmark": _Kind(
        "benchmark.stop", "benchmark-runs", "benchmark run", "benchmark runs info", key="benchmark_run"
    ),
}


def stop_run(kind: str, name: str, *, yes: bool) -> OperationResult:
    """Ask, then stop a run."""
    chosen = _KINDS[kind]
    workspace = open_workspace()
    if not confirmed(Question(f"Stop this {chosen.noun}?", {"Name": name}), yes=yes):
        return OperationResult(chosen.operation, status="cancelled", message="Cancelled.")
    from osmosis_ai.platform.api.client import segment

    resource: dict[str, Any] = {"name": name}
    with workspace.client as client, status(f"Stopping {chosen.noun}..."):
        target = name
        if chosen.key is not None:
            run = client.get(f"/{chosen.path}/{segment(name)}")[chosen.key]
            target = run["id"]
            resource = {"id": target, "name": run.get("name") or name, "status": "stopped"}
        client.post(f"/{chosen.path}/{segment(target)}/stop")
    return OperationResult(
        chosen.operation,
        resource={**resource, **workspace.context},
        next_text=[f"Details: osmosis {chosen.info} {resource['name']}"],
        message=f'{chosen.noun.capitalize()} "{resource["name"]}" stopped.',
    )

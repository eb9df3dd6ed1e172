"""Stopping runs."""

from osmosis_ai.cli.output.messages import status
from osmosis_ai.cli.output.results import OperationResult
from osmosis_ai.cli.prompts import Question, confirmed
from osmosis_ai.cli.workspace import open_workspace

_KINDS = {
    "training": ("train.stop", "training-runs", "Training run", "training run"),
    "eval": ("eval.stop", "eval-runs", "Evaluation run", "evaluation run"),
}


def stop_run(kind: str, name: str, *, yes: bool) -> OperationResult:
    """Ask, then stop a run."""
    operation, path, subject, noun = _KINDS[kind]
    workspace = open_workspace()
    if not confirmed(Question(f"Stop this {noun}?", {"Name": name}), yes=yes):
        return OperationResult(operation, status="cancelled", message="Cancelled.")
    from osmosis_ai.platform.api.client import segment

    with workspace.client as client, status(f"Stopping {noun}..."):
        client.post(f"/{path}/{segment(name)}/stop")
    return OperationResult(
        operation, resource={"name": name, **workspace.context}, message=f'{subject} "{name}" stopped.'
    )

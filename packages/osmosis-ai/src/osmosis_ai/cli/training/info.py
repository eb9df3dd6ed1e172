"""Showing a training run."""

import json
from pathlib import Path
from shlex import quote
from typing import Any

from osmosis_ai.cli import serializers
from osmosis_ai.cli.output import formats
from osmosis_ai.cli.output.messages import status
from osmosis_ai.cli.output.mode import Mode, mode
from osmosis_ai.cli.output.results import Block, DetailResult
from osmosis_ai.cli.run_details import (
    configuration_block,
    error_rows,
    metric_block,
    plots,
    progress_bar,
    run_duration,
)
from osmosis_ai.cli.run_output import metrics_file
from osmosis_ai.cli.training.metrics import export_document
from osmosis_ai.cli.training.show import summary
from osmosis_ai.cli.watch import Snapshot, watch
from osmosis_ai.cli.workspace import Workspace, open_workspace
from osmosis_ai.platform.api.client import PlatformClient, segment
from osmosis_ai.platform.errors import AuthError, PlatformError

WAITING = {"pending", "queued"}
TERMINAL = {"finished", "failed", "crashed", "stopped", "killed", "unknown"}
_NOT_YET = "Metrics are not yet available for pending or queued runs."


def run_info(name: str, output: str | None, *, follow: bool) -> DetailResult:
    """A run with its checkpoints and metrics; in a terminal, or with ``-o``, the metrics are also written to a file.

    With ``follow`` the run is shown as it changes until it is over.
    """
    workspace = open_workspace()
    with workspace.client as client:
        if follow:
            watch(lambda: _snapshot(client, name))
        with status("Fetching training run..."):
            answer = client.get(f"/training-runs/{segment(name)}")
            run: dict[str, Any] = answer["training_run"]
            checkpoints = _checkpoints(client, name) if run.get("status") not in WAITING else []
            document, error = _metrics(client, run, answer)
    path, save_warning = _save(workspace, run, output, document)
    shown = serializers.training_run(run, answer.get("model"), answer.get("dataset"), answer.get("rollout"))
    shown |= serializers.pick(run, ["examples_processed_count", "notes"])
    url = run.get("platform_url")
    data: dict[str, Any] = {
        "training_run": shown,
        "summary": summary(run),
        "platform_url": url,
        "checkpoints": [serializers.checkpoint(item) for item in checkpoints],
        "in_progress": run.get("status") not in TERMINAL,
        "metrics_available": document is not None,
        "metrics_error": error,
        "metrics": document,
        "output_path": str(path) if path else None,
        "save_warning": save_warning,
        **workspace.context,
    }
    following = (
        [] if run.get("status") in TERMINAL else [f"Follow it with: osmosis train info {quote(name)} --watch"]
    )
    return DetailResult(
        data,
        _rows(run, shown, answer, document),
        title="Training Run",
        blocks=_blocks(answer, checkpoints, document),
        hints=_hints(name, run, checkpoints, error, path, save_warning),
        next_text=following,
    )


def _snapshot(client: PlatformClient, name: str) -> Snapshot:
    """The run as it is now, with its curves."""
    answer = client.get(f"/training-runs/{segment(name)}")
    run: dict[str, Any] = answer["training_run"]
    document, _ = _metrics(client, run, answer)
    curves = plots(document) if document is not None else None
    progress = summary(run).get("progress")
    rows = [
        ("Status", formats.title(run.get("status"))),
        ("Progress", progress_bar(progress)),
        ("Reward", formats.reward(run.get("reward"))),
        ("Duration", formats.duration(formats.elapsed(run.get("started_at"), run.get("completed_at")))),
        ("Examples Processed", formats.count(run.get("examples_processed_count"))),
    ]
    detail = DetailResult({}, rows, title=formats.text(run.get("name")), blocks=[curves] if curves else [])
    steps = formats.progress(progress["completed"], progress["total"], "steps") if progress else "not started"
    line = f"{formats.title(run.get('status'))}: {steps}, reward {formats.reward(run.get('reward'))}"
    return Snapshot(run.get("status") in TERMINAL, line, detail)


def _checkpoints(client: PlatformClient, name: str) -> list[dict[str, Any]]:
    """The checkpoints; none when the platform cannot say: the run is still worth showing."""
    try:
        found: list[dict[str, Any]] = client.get(f"/training-runs/{segment(name)}/checkpoints").get(
            "checkpoints", []
        )
    except AuthError:
        raise
    except PlatformError:
        return []
    return found


def _metrics(
    client: PlatformClient, run: dict[str, Any], answer: dict[str, Any]
) -> tuple[dict[str, Any] | None, str | None]:
    """The export document, or why there is none."""
    if run.get("status") in WAITING:
        return None, _NOT_YET
    names = {key: serializers.name_of(answer.get(key)) for key in ("model", "dataset", "rollout")}
    try:
        return export_document(run, names, client.get(f"/training-runs/{segment(run['id'])}/metrics")), None
    except AuthError:
        raise
    except PlatformError as error:
        return None, f"Metrics are not available: {error.message}"
    except (KeyError, TypeError, ValueError) as error:
        return None, f"Metrics are not available: the platform's answer is malformed ({error})."


def _save(
    workspace: Workspace, run: dict[str, Any], output: str | None, document: dict[str, Any] | None
) -> tuple[Path | None, str | None]:
    if document is None or (output is None and mode() is not Mode.RICH):
        return None, None
    path = metrics_file(workspace.root, run.get("name"), run["id"], output)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        return None, f"The metrics could not be saved to {path}: {error.strerror}"
    return path, None


def _progress(run: dict[str, Any], document: dict[str, Any] | None) -> str:
    """Steps of the run; where it does not tell them, those of its metrics."""
    if run.get("status") == "pending":
        return "Waiting to start..."
    progress = summary(run).get("progress")
    if progress:
        return formats.progress(progress["completed"], progress["total"], "steps")
    measured = document["training_run"] if document is not None else {}
    return formats.progress(measured.get("latest_step"), measured.get("total_steps"), "rollout steps")


def _rows(
    run: dict[str, Any], shown: dict[str, Any], answer: dict[str, Any], document: dict[str, Any] | None
) -> list[tuple[str, str]]:
    identity = [("ID", str(run["id"]))] if answer.get("is_internal_user") else []
    submitted_by = run.get("creator_name") or run.get("creator_email")
    measured = document["training_run"] if document is not None else {}
    examples = run.get("examples_processed_count")
    rows = [
        ("Name", formats.text(run.get("name"))),
        *identity,
        ("Status", formats.title(run.get("status"))),
        ("Progress", _progress(run, document)),
        ("Reward", formats.reward(run.get("reward"))),
        ("Duration", run_duration(run, measured.get("duration_ms"))),
        (
            "Examples Processed",
            formats.count(measured.get("rows_processed") if examples is None else examples),
        ),
        ("Submitted", formats.date(run.get("created_at"), seconds=True)),
        ("Submitted By", formats.text(submitted_by)),
        ("Dataset", formats.text(shown["dataset_name"])),
        ("Base Model", formats.text(shown["model_name"])),
        ("Rollout", formats.text(shown["rollout_name"])),
        ("Started", formats.date(run.get("started_at"), seconds=True)),
        ("Completed", formats.date(run.get("completed_at"), seconds=True)),
    ]
    rows += error_rows(run)
    return rows + (
        [("Notes", str(run["notes"]))] if run.get("notes") not in (None, "", run.get("error")) else []
    )


def _blocks(
    answer: dict[str, Any], checkpoints: list[dict[str, Any]], document: dict[str, Any] | None
) -> list[Block]:
    blocks = [configuration_block(answer)]
    if checkpoints:
        lines = [
            f"Checkpoint: {formats.text(item.get('checkpoint_name'))} step {formats.text(item.get('checkpoint_step'))} "
            f"{formats.token(item.get('status'))}"
            for item in checkpoints
        ]
        blocks.append(Block("Checkpoints", lines))
    plots = metric_block(document)
    return blocks + ([plots] if plots else [])


def _hints(
    name: str,
    run: dict[str, Any],
    checkpoints: list[dict[str, Any]],
    error: str | None,
    path: Path | None,
    save_warning: str | None,
) -> list[str]:
    hints = [f"View: {run['platform_url']}"] if run.get("platform_url") else []
    if run.get("status") in {"failed", "crashed"}:
        hints.append(f"See logs with: osmosis train logs {quote(name)}")
    if checkpoints:
        names = [str(item["checkpoint_name"]) for item in checkpoints if item.get("checkpoint_name")]
        last = f"  (the last one: {quote(names[-1])})" if names else ""
        hints.append(f"Deploy with: osmosis model deploy <lora-model-name>{last}")
    if error:
        hints.append(error)
    if path is not None:
        hints.append(f"Saved metrics to {path}")
    return hints + ([save_warning] if save_warning else [])

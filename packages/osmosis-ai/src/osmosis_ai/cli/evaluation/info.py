"""Showing an evaluation run."""

from pathlib import Path
from shlex import quote
from typing import Any

from osmosis_ai.cli import serializers
from osmosis_ai.cli.evaluation.metrics import metrics_object
from osmosis_ai.cli.evaluation.show import detail_summary
from osmosis_ai.cli.output import formats
from osmosis_ai.cli.output.messages import status
from osmosis_ai.cli.output.mode import Mode, mode
from osmosis_ai.cli.output.results import Block, DetailResult
from osmosis_ai.cli.run_details import configuration_block, error_rows, progress_bar, run_duration
from osmosis_ai.cli.run_output import run_root
from osmosis_ai.cli.watch import Snapshot, watch
from osmosis_ai.cli.workspace import Workspace, open_workspace
from osmosis_ai.errors import OsmosisError
from osmosis_ai.platform.api.client import PlatformClient, segment
from osmosis_ai.platform.errors import AuthError, PlatformError

_TERMINAL = {"finished", "failed", "stopped"}
_NOT_YET = "Metrics are not yet available for pending runs."


def run_info(name: str, output: str | None, *, follow: bool) -> DetailResult:
    """A run with its results; in a terminal, or with ``-o``, the platform's ``metrics.json`` is saved too.

    With ``follow`` the run is shown as it changes until it is over.
    """
    workspace = open_workspace()
    with workspace.client as client:
        if follow:
            watch(lambda: _snapshot(client, name))
        with status("Fetching evaluation run..."):
            answer = client.get(f"/eval-runs/{segment(name)}")
            run: dict[str, Any] = answer["eval_run"]
            metrics, error = _metrics(client, answer)
            path, save_warning = _save(workspace, run, output) if metrics is not None else (None, None)
    config = answer.get("config") or {}
    summary = detail_summary(answer.get("results"), config)
    data: dict[str, Any] = {
        "eval_run": serializers.eval_run({**run, **{key: answer.get(key) for key in ("dataset", "rollout")}})
        | {"model": config.get("model_path")},
        "summary": summary,
        "config": answer.get("config"),
        "results": answer.get("results"),
        "model": config.get("model_path"),
        "dataset": serializers.name_of(answer.get("dataset")),
        "rollout": serializers.name_of(answer.get("rollout")),
        **serializers.pick(
            answer,
            [
                "entrypoint",
                "commit_sha",
                "branch",
                "env_config",
                "resolved_secret_scopes",
                "dataset_df_stats",
            ],
        ),
        "metrics": metrics,
        "metrics_available": metrics is not None,
        "metrics_error": error,
        "output_path": str(path) if path else None,
        "save_warning": save_warning,
        **workspace.context,
    }
    return DetailResult(
        data,
        _rows(data, answer, summary),
        title="Evaluation Run",
        blocks=[configuration_block(answer), *_results_block(answer.get("results") or {}, summary)],
        hints=_hints(name, run, error, path, save_warning),
        next_text=_next(name, run, answer),
    )


def _snapshot(client: PlatformClient, name: str) -> Snapshot:
    """The run as it is now."""
    answer = client.get(f"/eval-runs/{segment(name)}")
    run: dict[str, Any] = answer["eval_run"]
    results = answer.get("results") or {}
    now = detail_summary(results, answer.get("config"))
    progress, state = now.get("progress"), formats.text(run.get("status"))
    rows = [
        ("Status", state),
        ("Progress", progress_bar(progress)),
        ("Reward", formats.reward(now.get("avg_reward"))),
        ("Pass Rate", formats.percent(now.get("pass_rate"))),
        ("Duration", formats.duration(formats.elapsed(run.get("started_at"), run.get("completed_at")))),
        ("Tokens Used", formats.count(now.get("total_tokens"))),
    ]
    detail = DetailResult({}, rows, title=formats.text(run.get("name")), blocks=_results_block(results, now))
    samples = (
        formats.progress(progress["completed"], progress["total"], "samples") if progress else "not started"
    )
    line = f"{state}: {samples}, reward {formats.reward(now.get('avg_reward'))}"
    return Snapshot(run.get("status") in _TERMINAL, line, detail)


def _next(name: str, run: dict[str, Any], answer: dict[str, Any]) -> list[str]:
    if run.get("status") not in _TERMINAL:
        return [f"Follow it with: osmosis eval info {quote(name)} --watch"]
    if (answer.get("results") or {}).get("failures"):
        return [f"Run what failed again with: osmosis eval retry {quote(name)}"]
    finished = run.get("status") == "finished"
    return [f"Download samples with: osmosis eval download {quote(name)}"] if finished else []


def _metrics(client: PlatformClient, answer: dict[str, Any]) -> tuple[dict[str, Any] | None, str | None]:
    """The metrics, or why there are none."""
    run = answer["eval_run"]
    if run.get("status") == "pending":
        return None, _NOT_YET
    try:
        return metrics_object(answer, client.get(f"/eval-runs/{segment(run['id'])}/metrics")), None
    except AuthError:
        raise
    except PlatformError as error:
        return None, f"Metrics are not available: {error.message}"
    except (KeyError, TypeError) as error:
        return None, f"Metrics are not available: the platform's answer is malformed ({error})."


def _save(workspace: Workspace, run: dict[str, Any], output: str | None) -> tuple[Path | None, str | None]:
    """Download ``metrics.json``; a failure is a warning, the run is still shown."""
    if output is None and mode() is not Mode.RICH:
        return None, None
    from osmosis_ai.cli.downloads.manifest import RUN_DOWNLOADS, fetch_manifest
    from osmosis_ai.cli.downloads.transfer import fetch_files

    try:
        root = run_root(workspace.root, "evals", run.get("name"), run["id"], output)
        manifest = fetch_manifest(workspace.client, RUN_DOWNLOADS["eval"], run["id"], ["metrics"], None)
        outcome = fetch_files(
            workspace.client, RUN_DOWNLOADS["eval"], run["id"], manifest.files, root, overwrite=True
        )
    except AuthError:
        raise
    except OsmosisError as error:
        return None, f"metrics.json could not be saved: {error.message}"
    if outcome.failed:
        return None, f"metrics.json could not be saved: {outcome.failed[0]['error']}"
    return root / "metrics.json", None


def _rows(data: dict[str, Any], answer: dict[str, Any], summary: dict[str, Any]) -> list[tuple[str, str]]:
    run, progress = answer["eval_run"], summary.get("progress")
    measured = data["metrics"]["eval_run"] if data["metrics"] is not None else {}
    identity = [("ID", str(run["id"]))] if answer.get("is_internal_user") else []
    return [
        ("Name", formats.text(run.get("name"))),
        *identity,
        ("Status", formats.text(run.get("status"))),
        (
            "Progress",
            formats.progress(progress["completed"], progress["total"], "samples")
            if progress
            else formats.MISSING,
        ),
        ("Duration", run_duration(run, measured.get("duration_ms"))),
        ("Reward", formats.reward(summary.get("avg_reward"))),
        ("Pass Rate", formats.percent(summary.get("pass_rate"))),
        ("Tokens Used", formats.count(summary.get("total_tokens"))),
        ("Submitted", formats.date(run.get("created_at"), seconds=True)),
        ("Submitted By", formats.text(run.get("creator_name") or run.get("creator_email"))),
        ("Started", formats.date(run.get("started_at"), seconds=True)),
        ("Completed", formats.date(run.get("completed_at"), seconds=True)),
        ("Dataset", formats.text(data["dataset"])),
        ("Model", formats.text(data["model"])),
        ("Rollout", formats.text(data["rollout"])),
        *error_rows(run),
    ]


def _results_block(results: dict[str, Any], summary: dict[str, Any]) -> list[Block]:
    lines: list[str] = []
    if "graded" in summary:
        lines.append(
            f"{summary['graded']} graded, {summary.get('passed', 0)} passed, {summary.get('failed', 0)} failed, "
            f"{summary.get('skipped', 0)} skipped"
        )
    for failure in results.get("failures") or []:
        lines.append(f"Failed {failure['count']} times: {failure['error_type']}: {failure['error_message']}")
    if "pass_threshold" in summary:
        lines.append(f"Pass Threshold: {summary['pass_threshold']:.4f}")
    stats = results.get("reward_stats") or {}
    known = [
        f"{key} {stats[key]:.4f}"
        for key in ("mean", "std", "min", "median", "max")
        if formats.is_number(stats.get(key))
    ]
    if known:
        lines.append(f"Reward Stats: {', '.join(known)}")
    at_k = stats.get("pass_at_k") or {}
    if at_k:
        shown = ", ".join(
            f"{k}: {formats.percent(value)}"
            for k, value in sorted(at_k.items(), key=lambda pair: int(pair[0]))
        )
        lines.append(f"Pass@k: {shown}")
    return [Block("Results", lines)] if lines else []


def _hints(
    name: str, run: dict[str, Any], error: str | None, path: Path | None, save_warning: str | None
) -> list[str]:
    hints = [f"View: {run['platform_url']}"] if run.get("platform_url") else []
    if run.get("status") == "failed":
        hints.append(f"See logs with: osmosis eval logs {quote(name)}")
    if error:
        hints.append(error)
    if path is not None:
        hints.append(f"Saved metrics to {path}")
    return hints + ([save_warning] if save_warning else [])

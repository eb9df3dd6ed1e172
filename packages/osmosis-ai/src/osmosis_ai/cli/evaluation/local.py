"""``osmosis eval run``: an evaluation on this machine, without the platform."""

import hashlib
import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from osmosis_ai.cli.errors import CLIError
from osmosis_ai.cli.evaluation.local_data import Source, dataset_source
from osmosis_ai.cli.git import tree_state, worktree_root
from osmosis_ai.cli.output import formats
from osmosis_ai.cli.output.messages import counter, notice, status, warn
from osmosis_ai.cli.output.mode import Mode, mode
from osmosis_ai.cli.output.results import OperationResult
from osmosis_ai.cli.prompts import Question, confirmed
from osmosis_ai.cli.submit.values import secret_values
from osmosis_ai.config import RunConfig, load_config
from osmosis_ai.config.submission import Submission, validate_submission
from osmosis_ai.extras import extra
from osmosis_ai.provider_names import cannot_be_called, has_known_provider, missing_key

if TYPE_CHECKING:
    from osmosis_ai.eval.local.folder import RunFolder
    from osmosis_ai.eval.local.run import LocalEvaluation, LocalOutcome

_SHOWN_FAILURES = 5


@dataclass(frozen=True, slots=True)
class LocalOptions:
    """The options of the command."""

    config_path: str
    name: str | None = None
    output: str | None = None
    dataset_file: str | None = None
    secrets_file: str | None = None
    rows: str | None = None
    model_url: str | None = None
    fresh: bool = False
    retry_failed: bool = False
    max_in_flight: int | None = None
    rollout_port: int | None = None
    verbose: bool = False
    yes: bool = False


def run_locally(options: LocalOptions) -> OperationResult:
    """Check, ask, evaluate, and show where the results are.

    Raises:
        OsmosisError: the config, the dataset, a secret, the rollout or the model cannot be used.
    """
    from osmosis_ai.eval.local.folder import RunFolder
    from osmosis_ai.eval.local.names import name_problem, new_name

    root = worktree_root(Path.cwd())
    config = load_config(Path(options.config_path).expanduser().absolute(), "eval", root)
    submission = _checked(config)
    _check_model(submission.experiment["model_path"], options.model_url)
    if options.rollout_port is not None:
        _check_port(options.rollout_port)
    name = options.name or new_name()
    if problem := name_problem(name):
        raise CLIError(f"--name: {name!r} cannot be used: {problem}.", details={"field": "name"})
    folder = RunFolder(_output_root(options, root), name)
    secrets = secret_values(config.secrets, options.secrets_file)
    if options.model_url is None:
        _check_key(submission)
    with folder.locked(), _scratch() as scratch:
        source = dataset_source(options.dataset_file, submission.experiment["dataset"])
        rows_path, total = _index(source, scratch)
        selected = _selected(options.rows, submission, total)
        inputs = _inputs(config, submission, source, selected, total, options)
        if not _confirmed(options, submission, len(selected), folder):
            return OperationResult("eval.run", status="cancelled", message="Cancelled.")
        if options.fresh and (aside := folder.archive()) is not None:
            notice(f"The earlier evaluation is now in {aside}")
        again = folder.begin(inputs, _provenance(config, root))
        kept = folder.state / "rows.parquet"
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(rows_path, kept)
        if again and options.retry_failed:
            notice(f"{folder.forget_failed()} failed attempts run again")
        plan = _plan(options, submission, secrets, folder, root, kept, selected)
        outcome = _evaluate(plan, options)
    return _result(folder, source, submission, outcome, len(selected))


def _checked(config: RunConfig) -> Submission:
    checked = validate_submission("eval", config.request_body())
    if isinstance(checked, list):
        raise config.source.invalid("eval", checked)
    for warning in checked.warnings:
        warn("CONFIG", warning)
    return checked


def _check_model(model: str, model_url: str | None) -> None:
    """Refuse what no model could answer at, before anything is made."""
    if model_url is not None:
        parts = urlsplit(model_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise CLIError(
                f"--model-url: {model_url!r} is no address; it begins with http:// or https://, such as "
                "http://127.0.0.1:8000/v1.",
                details={"field": "model_url"},
            )
    elif not has_known_provider(model):
        raise CLIError(
            f"model_path {model!r} names no provider that can be called from here. Base models and LoRA models of the platform "
            "run there (osmosis eval submit); for a server of your own give its address with --model-url.",
            details={"field": "model_path"},
        )


def _check_port(port: int) -> None:
    from osmosis_ai.eval.local.server import require_free

    try:
        require_free(port)
    except OSError as error:
        raise CLIError(
            f"--rollout-port: port {port} cannot be used: {error.strerror}. Without the option a free one is chosen.",
            details={"field": "rollout_port", "value": port},
        ) from error


def _check_key(submission: Submission) -> None:
    """Refuse, before anything is made, to call a provider without its key. ``[env]`` is for the rollout only."""
    model = submission.experiment["model_path"]
    known = {*submission.secrets, *(name for name, value in os.environ.items() if value)}
    variable = missing_key(model, known)
    if variable is None:
        return
    problem = (
        f"{model} is called with {variable}, which is not set: export it, or list it under [secrets].required "
        "and give its value with --secrets-file."
    )
    if not cannot_be_called(model, known):
        warn("CONFIG", problem)
        return
    raise CLIError(
        f"{problem} For a server of your own give its address with --model-url.",
        details={"field": "model_path", "missing": [variable]},
    )


def _output_root(options: LocalOptions, root: Path) -> Path:
    if options.output is not None:
        return Path(options.output).expanduser().absolute()
    return root / ".osmosis" / "evals"


@contextmanager
def _scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="osmosis-eval-") as folder:
        yield Path(folder)


def _index(source: Source, scratch: Path) -> tuple[Path, int]:
    """The rows of the dataset as Parquet, and how many there are."""
    with extra("parquet"):
        import pyarrow  # noqa: F401

    from osmosis_ai.datasets.indexing import index_file

    target = scratch / "rows.parquet"
    with status("Reading the dataset..."):
        indexed = index_file(source.path, target)
    if not indexed.report.valid:
        lines = "\n".join(f"  - {error}" for error in indexed.report.errors)
        raise CLIError(
            f"The dataset {source.path} cannot be used:\n{lines}",
            details={"path": str(source.path), "errors": indexed.report.errors},
        )
    return target, indexed.report.row_count or 0


def _selected(rows: str | None, submission: Submission, total: int) -> list[int]:
    from osmosis_ai.eval.local.selection import parse_rows

    limit = submission.config["evaluation"]["limit"]
    if rows is None:
        return list(range(total if limit is None else min(limit, total)))
    try:
        return parse_rows(rows, total)
    except ValueError as error:
        raise CLIError(f"--rows: {error}.", details={"field": "rows", "value": rows}) from error


def _inputs(
    config: RunConfig,
    submission: Submission,
    source: Source,
    selected: list[int],
    total: int,
    options: LocalOptions,
) -> dict[str, Any]:
    """What decides the results, and so must be the same when a run goes on. Secret values are not among it."""
    from osmosis_ai.eval.local.run import source_digest
    from osmosis_ai.eval.local.selection import selector

    experiment, evaluation = submission.experiment, submission.config["evaluation"]
    return {
        "rollout": experiment["rollout"],
        "entrypoint": experiment["entrypoint"],
        "source_digest": source_digest(_code(config)),
        "model_path": experiment["model_path"],
        "model_url": options.model_url,
        "dataset": source.name,
        "dataset_sha256": _sha256(source.path),
        "dataset_rows": total,
        "selected_source_rows": selector(selected),
        "selected_rows": len(selected),
        **{
            key: evaluation[key]
            for key in ("n", "pass_threshold", "agent_workflow_timeout_s", "grader_timeout_s")
        },
        "policy": submission.config["advanced"]["policy"],
        "env": config.env,
    }


def _code(config: RunConfig) -> Path:
    return config.path.parents[2] / "rollouts" / config.experiment["rollout"]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _provenance(config: RunConfig, root: Path) -> dict[str, Any]:
    state = tree_state(root)
    return {
        "git_head": state.head,
        "git_branch": state.branch,
        "git_dirty": state.dirty,
        "config_path": config.path.relative_to(root.resolve()).as_posix(),
    }


def _confirmed(options: LocalOptions, submission: Submission, rows: int, folder: "RunFolder") -> bool:
    experiment, n = submission.experiment, submission.config["evaluation"]["n"]
    question = Question(
        f"Run {rows * n:,} rollouts against {experiment['model_path']}?",
        {
            "Rollout": f"{experiment['rollout']}/{experiment['entrypoint']}",
            "Model": experiment["model_path"]
            + (f" at {options.model_url}" if options.model_url is not None else ""),
            "Rows": f"{rows:,}",
            "Attempts per row": f"{n}",
            "Results": str(folder.path),
        },
        notes=["The code of the working tree is run as it lies here, without a sandbox."],
    )
    return confirmed(question, yes=options.yes)


def _plan(
    options: LocalOptions,
    submission: Submission,
    secrets: dict[str, str],
    folder: "RunFolder",
    root: Path,
    rows_path: Path,
    selected: list[int],
) -> "LocalEvaluation":
    from osmosis_ai.eval.local.run import LocalEvaluation
    from osmosis_ai.worker.spec import EvalConfig

    experiment = submission.experiment
    return LocalEvaluation(
        folder=folder,
        code=root / "rollouts" / experiment["rollout"],
        entrypoint=experiment["entrypoint"],
        rows_path=rows_path,
        selected=selected,
        config=EvalConfig.model_validate(submission.config),
        model=experiment["model_path"],
        model_url=options.model_url,
        model_key=secrets.get("OPENAI_API_KEY") or os.environ.get("OPENAI_API_KEY") or "none",
        env=submission.env,
        secrets=secrets,
        port=options.rollout_port,
        max_in_flight=options.max_in_flight,
    )


def _evaluate(plan: "LocalEvaluation", options: LocalOptions) -> "LocalOutcome":
    from osmosis_ai.eval.local.run import run_local

    verbose = options.verbose and mode() is not Mode.JSON
    with counter("Evaluating", "attempts") as show:
        return run_local(plan, say=notice, on_line=notice if verbose else lambda _line: None, progress=show)


def _result(
    folder: "RunFolder", source: Source, submission: Submission, outcome: "LocalOutcome", rows: int
) -> OperationResult:
    results = outcome.summary["results"]
    total = rows * submission.config["evaluation"]["n"]
    done = results["total_runs"]
    attempts = folder.attempts()
    failed = [attempt for attempt in attempts if attempt["status"] == "failed"]
    metrics = outcome.summary["metrics"]
    resource = {
        "run_name": folder.name,
        "local_run_id": folder.manifest()["local_run_id"],
        "output_path": str(folder.path),
        "dataset_source": source.kind,
        "total_work_items": total,
        "dispatched": done - outcome.resumed,
        "succeeded": sum(attempt["status"] == "success" for attempt in attempts),
        "failed": results["failed"],
        "skipped": results["skipped"],
        "resumed": outcome.resumed,
        "cancelled": total - done,
        "duration_ms": metrics["overview"]["duration_ms"],
        "metrics": {
            **metrics["overview"],
            "score": results["score"],
            "reward_stats": metrics["reward_stats"],
            "pass_at_k": metrics["pass_at_k"],
            "confidence": results["confidence"],
        },
        "failed_rows": sorted({attempt["row_index"] for attempt in failed}),
    }
    complete = done == total
    return OperationResult(
        "eval.run",
        status="success" if complete else "partial",
        resource=resource,
        message=f"Evaluation {folder.name}: {done:,} of {total:,} attempts finished.",
        next_text=_lines(folder, results, failed, complete, submission),
    )


def _lines(
    folder: "RunFolder",
    results: dict[str, Any],
    failed: list[dict[str, Any]],
    complete: bool,
    submission: Submission,
) -> list[str]:
    spread = results["confidence"].get("score")
    interval = f" (95 %: {spread['low']:.2f} to {spread['high']:.2f})" if spread else ""
    lines = [
        f"Mean reward: {formats.reward(results['score'])}{interval}",
        f"Pass rate: {formats.percent(results['pass_rate'])} of "
        f"{results['total_runs'] - results['skipped']:,} (reward >= {results['pass_threshold']:g})",
    ]
    stats = results["reward_stats"] or {}
    if points := stats.get("pass_at_k"):
        lines.append("pass@k: " + ", ".join(f"{k}: {formats.percent(value)}" for k, value in points.items()))
    for attempt in failed[:_SHOWN_FAILURES]:
        lines.append(
            f"Failed: row {attempt['row_index']}, attempt {attempt['run_index']}: {attempt.get('error_type')}: "
            f"{str(attempt.get('error_message') or '')[:200]}"
        )
    if len(failed) > _SHOWN_FAILURES:
        lines.append(f"... and {len(failed) - _SHOWN_FAILURES} more failed attempts")
    lines.append(f"Results: {folder.path}")
    if not complete:
        lines.append(f"Go on with the same command and --name {folder.name}")
    elif failed:
        lines.append(f"Run the failed ones again: --name {shlex.quote(folder.name)} --retry-failed")
    else:
        lines.append(f"Show it on the platform: osmosis eval upload {_upload_name(folder)}")
    return lines


def _upload_name(folder: "RunFolder") -> str:
    """How `osmosis eval upload` finds the evaluation: by name in the usual place, else by its folder."""
    usual = folder.path.parts[-3:-1] == (".osmosis", "evals")
    return shlex.quote(folder.name if usual else str(folder.path))

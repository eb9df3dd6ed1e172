"""Builds the run of an import from its files; every number is computed again from `index.jsonl`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError
from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from osmosis_platform.context import Platform
from osmosis_platform.datasets.models import Dataset
from osmosis_platform.db.types import utc_now
from osmosis_platform.errors import InvalidInput
from osmosis_platform.evaluation.results import refresh_results
from osmosis_platform.runs.models import EvalImport, EvalImportFile, LogLine, Run, RunArtifact, RunAttempt
from osmosis_platform.runs.names import unused_name
from osmosis_platform.runs.upsert import insert_missing
from osmosis_platform.runs.wire import Index, cut

Files = Mapping[str, EvalImportFile]


class _Line(BaseModel):
    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)
    row_index: Index
    run_index: Index
    rollout_id: Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
    status: Literal["success", "failed", "skipped"]
    duration_ms: FiniteFloat | None = None
    reward: FiniteFloat | None = None
    tokens: Annotated[int, Field(ge=0, lt=2**53)] | None = None
    error_type: Annotated[str, Field(max_length=200)] | None = None
    error_message: str | None = None
    trajectory_filename: Annotated[str, Field(max_length=200)] | None = None
    resumed: bool | None = None


class _Progress(BaseModel):
    model_config = ConfigDict(extra="ignore")
    total_runs: Annotated[int, Field(ge=0, lt=2**31)]
    sampled_rows: Annotated[int, Field(ge=0, lt=2**31)]
    total_dataset_rows: Annotated[int, Field(ge=0, lt=2**53)]


def build_run(session: Session, platform: Platform, found: EvalImport, files: Files) -> Run:
    """The finished run of an import; one built from the same local run before is replaced in place.

    Raises InvalidInput, which names the file and the line.
    """
    lines = list(_index(platform.blobs.read_bytes(files["index.jsonl"].sha256)))
    progress = _progress(platform.blobs.read_bytes(files["progress.json"].sha256))
    run = session.get(Run, found.run_id) if found.run_id is not None else None
    if run is None:
        run = Run(
            workspace_id=found.workspace_id, kind="eval", creator_id=found.creator_id, status="finished"
        )
        run.name = _free_name(session, found)
    _describe(session, run, found, progress, resumed=sum(bool(line.resumed) for line in lines))
    session.add(run)
    session.flush()
    session.execute(delete(RunAttempt).where(RunAttempt.run_id == run.id))
    session.execute(delete(RunArtifact).where(RunArtifact.run_id == run.id))
    session.execute(delete(LogLine).where(LogLine.owner_id == run.id))
    insert_missing(session, RunAttempt, [_attempt(run, line, files) for line in lines])
    insert_missing(session, RunArtifact, list(_artifacts(run, lines, files)))
    if "logs.txt" in files:
        _log(session, run, platform.blobs.read_bytes(files["logs.txt"].sha256))
    refresh_results(session, run)
    return run


def _index(content: bytes) -> Iterator[_Line]:
    seen: set[tuple[int, int]] = set()
    for number, raw in enumerate(content.splitlines(), start=1):
        if not raw.strip():
            continue
        try:
            line = _Line.model_validate_json(raw)
        except ValidationError as error:
            first = error.errors(include_input=False)[0]
            raise InvalidInput(
                f"index.jsonl line {number}: {'.'.join(map(str, first['loc'])) or 'line'}: {first['msg']}"
            ) from error
        if (line.row_index, line.run_index) in seen:
            raise InvalidInput(
                f"index.jsonl line {number}: row {line.row_index} run {line.run_index} is there twice"
            )
        seen.add((line.row_index, line.run_index))
        yield line


def _progress(content: bytes) -> _Progress:
    try:
        return _Progress.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        raise InvalidInput(f"progress.json: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error


def _free_name(session: Session, found: EvalImport) -> str:
    wanted: str = found.declaration["run"]["name"]
    taken = session.scalar(select(Run.id).where(Run.workspace_id == found.workspace_id, Run.name == wanted))
    return wanted if taken is None else unused_name(session, found.workspace_id)


def _describe(session: Session, run: Run, found: EvalImport, progress: _Progress, *, resumed: int) -> None:
    declared: dict[str, Any] = found.declaration["run"]
    experiment = declared["experiment_config"]
    dataset = session.scalar(
        select(Dataset)
        .where(
            Dataset.workspace_id == found.workspace_id,
            Dataset.name == experiment["dataset"]["name"],
            Dataset.deleted_at.is_(None),
        )
        .order_by(Dataset.created_at.desc())
        .limit(1)
    )
    provenance = found.declaration.get("provenance", {})
    run.rollout_name = experiment["rollout"]["name"]
    run.entrypoint, run.model_path = experiment["entrypoint"], experiment["model_path"]
    run.branch = experiment["rollout"].get("branch") or provenance.get("git_branch")
    run.commit_sha = experiment["rollout"].get("commit_sha") or provenance.get("git_head") or ""
    run.dataset_id = dataset.id if dataset else None
    run.started_at = _moment(declared.get("started_at"))
    run.completed_at = _moment(declared.get("completed_at")) or utc_now()
    run.sampled_rows, run.total_runs = progress.sampled_rows, progress.total_runs
    run.config = {
        "experiment": {"dataset": experiment["dataset"]["name"], "model_path": run.model_path},
        "evaluation": declared["evaluation_config"],
    }
    run.env, run.secret_names, run.secret_scopes, run.provided_names = {}, [], {}, []
    run.local_run = {
        "local_run_id": found.local_run_id,
        "config_path": provenance.get("config_path"),
        "eval_run_name": declared["name"],
        "dataset_name": experiment["dataset"]["name"],
        "total_dataset_rows": progress.total_dataset_rows,
        "resumed_count": resumed,
        "sdk_version": provenance.get("sdk_version"),
    }


def _moment(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def _attempt(run: Run, line: _Line, files: Files) -> dict[str, Any]:
    trajectory = files.get(
        f"rollout_trials/{line.rollout_id}/{line.trajectory_filename or 'trajectory.json'}"
    )
    return {
        "run_id": run.id,
        **line.model_dump(exclude={"trajectory_filename", "error_message", "resumed"}),
        "error_message": cut(line.error_message, 4000) if line.error_message is not None else None,
        "trajectory_sha256": trajectory.sha256 if trajectory is not None else None,
        "finished_at": run.completed_at,
    }


def _artifacts(run: Run, lines: list[_Line], files: Files) -> Iterator[dict[str, Any]]:
    attempts = {line.rollout_id: line for line in lines}
    for path, file in files.items():
        parts = path.split("/", 3)
        if len(parts) == 4 and parts[2] == "artifacts" and parts[1] in attempts:
            line = attempts[parts[1]]
            yield {
                "run_id": run.id,
                "row_index": line.row_index,
                "run_index": line.run_index,
                "path": parts[3],
                "size": file.size,
                "sha256": file.sha256,
            }


def _log(session: Session, run: Run, content: bytes) -> None:
    moment = run.completed_at or utc_now()
    rows = [
        {
            "owner_id": run.id,
            "event_id": f"import-{number}",
            "timestamp": moment,
            "level": "info",
            "step": "eval",
            "message": cut(text, 4000),
            "details": None,
        }
        for number, text in enumerate(content.decode("utf-8", "replace").splitlines())
        if text.strip()
    ]
    insert_missing(session, LogLine, rows)

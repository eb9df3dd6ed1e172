"""Turns a submit request into a pending run and the job that executes it, in one transaction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from osmosis_ai.config import Submission, validate_submission
from osmosis_platform.audit.service import record
from osmosis_platform.context import Platform
from osmosis_platform.datasets.models import Dataset
from osmosis_platform.errors import Conflict, InvalidInput, NotFound
from osmosis_platform.http.scope import WorkspaceScope
from osmosis_platform.repositories.models import Repository
from osmosis_platform.repositories.service import resolve_commit
from osmosis_platform.rollouts.models import Rollout
from osmosis_platform.runs import own_secrets
from osmosis_platform.runs.models import Run
from osmosis_platform.runs.names import unused_name
from osmosis_platform.runs.service import Kind, job_key, log, page_url
from osmosis_platform.secrets.service import resolve_names

# A queue of its own for each kind: a long training does not hold up evaluations.
QUEUES = {"eval": "evaluations", "train": "trainings"}
EXECUTE = "runs.execute"
# A run outlives any number of platform restarts; its own restarts are counted by the supervisor.
_JOB_ATTEMPTS = 1000


@dataclass(frozen=True, slots=True)
class Source:
    """The code of a run: a rollout's entrypoint at one commit."""

    rollout: str
    rollout_id: str | None
    entrypoint: str
    branch: str | None
    commit_sha: str


def accept(kind: Kind, body: Any) -> Submission:
    """The checked request; raises InvalidInput with every problem at once."""
    checked = validate_submission("eval" if kind == "eval" else "training", body)
    if isinstance(checked, Submission):
        return checked
    first = checked[0]
    more = f" (and {len(checked) - 1} more)" if len(checked) > 1 else ""
    raise InvalidInput(
        f"Invalid {'eval' if kind == 'eval' else 'training'} config: {first['key']}: {first['message']}{more}",
        code="INVALID_CONFIG",
        field=first["key"],
        issues=[{**issue} for issue in checked],  # type: ignore[dict-item]
    )


def create_run(
    session: Session,
    platform: Platform,
    scope: WorkspaceScope,
    kind: Kind,
    submission: Submission,
    *,
    source: Source,
    dataset: Dataset,
    base_model_id: str | None = None,
) -> Run:
    """Insert the run, its one-off secrets and its job.

    Raises NotFound for secrets that are neither stored nor provided.
    """
    experiment = submission.experiment
    scopes = resolve_names(
        session,
        scope.workspace.id,
        scope.user.id,
        submission.secrets,
        provided=submission.provided,
        platform_url=f"{platform.settings.resolved_public_url}/{scope.workspace.name}/secrets",
    )
    run = Run(
        workspace_id=scope.workspace.id,
        kind=kind,
        name=unused_name(session, scope.workspace.id),
        creator_id=scope.user.id,
        rollout_name=source.rollout,
        rollout_id=source.rollout_id,
        entrypoint=source.entrypoint,
        branch=source.branch,
        commit_sha=source.commit_sha,
        model_path=experiment["model_path"],
        base_model_id=base_model_id,
        dataset_id=dataset.id,
        config=submission.config,
        env=submission.env,
        secret_names=submission.secrets,
        secret_scopes=scopes,
        provided_names=sorted(submission.provided),
    )
    session.add(run)
    session.flush()
    own_secrets.keep(session, platform.keys, run, submission.provided)
    record(
        session,
        f"{run.kind}.submit",
        run.name,
        user_id=run.creator_id,
        workspace_id=run.workspace_id,
        run_id=run.id,
    )
    for warning in submission.warnings:
        log(session, run.id, warning, level="warning", step="init")
    enqueue(session, platform, run)
    return run


def enqueue(session: Session, platform: Platform, run: Run) -> str:
    """Queue the execution of a run; returns the job's id. A run that is queued already stays so."""
    job = platform.jobs.enqueue(
        session,
        QUEUES[run.kind],
        EXECUTE,
        {"run_id": run.id},
        dedupe_key=job_key(run),
        max_attempts=_JOB_ATTEMPTS,
    )
    return job.id


def find_dataset(session: Session, workspace_id: str, name_or_id: str) -> Dataset:
    """A dataset that can be read by a run; raises NotFound or Conflict."""
    query = select(Dataset).where(Dataset.workspace_id == workspace_id, Dataset.deleted_at.is_(None))
    dataset = session.scalar(query.where(Dataset.id == name_or_id)) or session.scalar(
        query.where(Dataset.name == name_or_id).order_by(
            (Dataset.status == "uploaded").desc(), Dataset.created_at.desc()
        )
    )
    if dataset is None:
        raise NotFound(
            f"Dataset not found: {name_or_id}. Upload it with `osmosis dataset upload`.",
            code="DATASET_NOT_FOUND",
            field="experiment.dataset",
        )
    if dataset.status != "uploaded" or dataset.rows_sha256 is None:
        raise Conflict(
            f"Dataset {dataset.name} is not ready: it is {dataset.status}."
            + (f" {dataset.error}" if dataset.error else ""),
            code="DATASET_NOT_READY",
            field="experiment.dataset",
        )
    return dataset


def find_source(
    session: Session,
    platform: Platform,
    workspace_id: str,
    repository: Repository | None,
    experiment: dict[str, Any],
) -> Source:
    """The rollout's code at the commit that the config names; raises NotFound, or Conflict without a repository."""
    if repository is None:
        raise Conflict(
            "This workspace has no repository. Connect one under Git Integration, push your rollout, and submit again.",
            code="REPOSITORY_REQUIRED",
        )
    sha, branch = resolve_commit(
        platform, repository, branch=experiment.get("branch"), commit_sha=experiment.get("commit_sha")
    )
    name, entrypoint = experiment["rollout"], experiment["entrypoint"]
    rollouts = platform.git.list_folders(repository.full_name, sha, "rollouts")
    if name not in rollouts:
        raise NotFound(
            f"Rollout not found: {name} is not below rollouts/ at commit {sha[:8]} of {repository.full_name}. "
            f"There: {', '.join(rollouts[:20]) or 'no rollouts'}. Push your work first.",
            code="ROLLOUT_NOT_FOUND",
            field="experiment.rollout",
        )
    if platform.git.read_text(repository.full_name, sha, f"rollouts/{name}/{entrypoint}", limit=1) is None:
        raise NotFound(
            f"Entrypoint not found: rollouts/{name}/{entrypoint} is not in commit {sha[:8]} of {repository.full_name}.",
            code="ENTRYPOINT_NOT_FOUND",
            field="experiment.entrypoint",
        )
    known = select(Rollout.id).where(
        Rollout.workspace_id == workspace_id,
        Rollout.name == name,
        Rollout.branch == (branch or repository.default_branch),
    )
    return Source(name, session.scalar(known), entrypoint, branch, sha)


def submitted_body(platform: Platform, workspace_name: str, run: Run) -> dict[str, Any]:
    """The answer to a submit."""
    return {
        "id": run.id,
        "name": run.name,
        "status": run.status,
        "created_at": run.created_at.isoformat(),
        "platform_url": page_url(platform, workspace_name, run),
    }

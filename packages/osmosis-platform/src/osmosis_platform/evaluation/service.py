"""The rules of evaluation runs, and their shapes on the wire."""

from __future__ import annotations

from typing import Any

from sqlalchemy import delete, func, select, tuple_
from sqlalchemy.orm import Session

from osmosis_platform.context import Platform
from osmosis_platform.errors import Conflict
from osmosis_platform.evaluation.models import resolve_eval_model
from osmosis_platform.evaluation.results import refresh_results
from osmosis_platform.http.scope import WorkspaceScope
from osmosis_platform.runs import own_secrets
from osmosis_platform.runs.facts import RunFacts
from osmosis_platform.runs.models import Run, RunArtifact, RunAttempt
from osmosis_platform.runs.service import log, page_url
from osmosis_platform.runs.status import transition
from osmosis_platform.runs.submit import accept, create_run, enqueue, find_dataset, find_source


def submit(session: Session, platform: Platform, scope: WorkspaceScope, body: Any) -> Run:
    """Accept an evaluation; raises InvalidInput, NotFound or Conflict with what to change."""
    submission = accept("eval", body)
    experiment = submission.experiment
    dataset = find_dataset(session, scope.workspace.id, experiment["dataset"])
    source = find_source(session, platform, scope.workspace.id, scope.repository, experiment)
    model = resolve_eval_model(session, scope.workspace.id, experiment["model_path"])
    return create_run(
        session,
        platform,
        scope,
        "eval",
        submission,
        source=source,
        dataset=dataset,
        base_model_id=model.base.id if model.base else None,
    )


def retry(
    session: Session, platform: Platform, scope: WorkspaceScope, run: Run, given: dict[str, str]
) -> dict[str, Any]:
    """Run the failed and missing attempts of an ended evaluation again; finished ones stay.

    Secret values given at submit are gone by then: while some are missing, Conflict names them in `run_secret_names`. A run that
    is pending or running again already is answered as it is.
    """
    if run.local_run is not None:
        known = {key: run.local_run.get(key) for key in ("config_path", "eval_run_name")}
        raise Conflict(
            f"Run {run.name} was evaluated on somebody's own machine; retry it there and upload it again.",
            code="LOCAL_RUN",
            extra={"local_run": {key: value for key, value in known.items() if value is not None}},
        )
    if run.status in ("pending", "running"):
        job_id = enqueue(session, platform, run) if run.status == "pending" else run.id
        return _retried(platform, scope, run, job_id, 0)
    needed: list[str] = run.provided_names
    missing = [name for name in needed if name not in given]
    if missing:
        raise Conflict(
            f"Run {run.name} used secret values that were given for it only; give them again: {', '.join(missing)}",
            code="RUN_SECRETS_REQUIRED",
            extra={"run_secret_names": needed},
        )
    resolve_eval_model(session, scope.workspace.id, run.model_path)
    failed = (RunAttempt.run_id == run.id, RunAttempt.status == "failed")
    count = session.scalar(select(func.count()).select_from(RunAttempt).where(*failed)) or 0
    if count == 0 and run.status == "finished":
        raise Conflict(
            f"Every attempt of run {run.name} finished; there is nothing to retry.", code="NOTHING_TO_RETRY"
        )
    gone = select(RunAttempt.row_index, RunAttempt.run_index).where(*failed)
    position = tuple_(RunArtifact.row_index, RunArtifact.run_index)
    session.execute(delete(RunArtifact).where(RunArtifact.run_id == run.id, position.in_(gone)))
    session.execute(delete(RunAttempt).where(*failed))
    transition(run, "pending")
    own_secrets.keep(session, platform.keys, run, {name: given[name] for name in needed})
    refresh_results(session, run)
    log(session, run.id, f"Retry: {count} failed attempts run again; finished ones stay.", step="runner")
    return _retried(platform, scope, run, enqueue(session, platform, run), count)


def _retried(platform: Platform, scope: WorkspaceScope, run: Run, job_id: str, count: int) -> dict[str, Any]:
    return {
        "id": run.id,
        "name": run.name,
        "status": run.status,
        "workflow_id": job_id,
        "retryable_samples": count,
        "platform_url": page_url(platform, scope.workspace.name, run),
    }


def list_item(facts: RunFacts, platform_url: str) -> dict[str, Any]:
    """One entry of the list."""
    return {
        **facts.head(platform_url),
        **_names(facts),
        "results": facts.run.results or {},
        "config": shown_config(facts.run),
    }


def detail(facts: RunFacts, platform_url: str) -> dict[str, Any]:
    """The whole run."""
    run = facts.run
    return {
        "eval_run": {
            **facts.head(platform_url),
            "phase": run.phase,
            "error": run.error,
            "error_type": run.error_type,
        },
        **_names(facts),
        "config": shown_config(run),
        "results": run.results or {},
        "dataset_df_stats": None,
        **facts.source(),
    }


def _names(facts: RunFacts) -> dict[str, Any]:
    run = facts.run
    return {
        "model": {"id": run.base_model_id, "name": run.model_path},
        "dataset": {"id": run.dataset_id, "name": facts.dataset_name},
        "rollout": {"id": run.rollout_id, "name": run.rollout_name},
    }


def shown_config(run: Run) -> dict[str, Any]:
    """The submitted settings, flat, without what was left open."""
    settings = {key: value for key, value in run.config.get("evaluation", {}).items() if value is not None}
    advanced = {
        key: value
        for key, value in run.config.get("advanced", {}).items()
        if value is not None and value != {}
    }
    return {"model_path": run.model_path, **settings, **({"advanced": advanced} if advanced else {})}

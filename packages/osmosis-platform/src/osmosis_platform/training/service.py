"""The rules of training runs, and their shapes on the wire."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from osmosis_platform.adapters.base_models import resolve_for_training
from osmosis_platform.adapters.checkpoints import best_step, validation_rewards
from osmosis_platform.adapters.models import LoraModel
from osmosis_platform.context import Platform
from osmosis_platform.http.scope import WorkspaceScope
from osmosis_platform.runs.facts import RunFacts
from osmosis_platform.runs.models import Run
from osmosis_platform.runs.series import series, summaries
from osmosis_platform.runs.service import duration_ms, metric_summaries
from osmosis_platform.runs.submit import accept, create_run, find_dataset, find_source


def submit(session: Session, platform: Platform, scope: WorkspaceScope, body: Any) -> Run:
    """Accept a training run; raises InvalidInput, NotFound or Conflict with what to change."""
    submission = accept("train", body)
    experiment = submission.experiment
    dataset = find_dataset(session, scope.workspace.id, experiment["dataset"])
    source = find_source(session, platform, scope.workspace.id, scope.repository, experiment)
    model = resolve_for_training(session, experiment["model_path"])
    return create_run(
        session, platform, scope, "train", submission, source=source, dataset=dataset, base_model_id=model.id
    )


def list_item(facts: RunFacts, platform_url: str) -> dict[str, Any]:
    """One entry of the list; model and dataset names have keys of their own there."""
    run = facts.run
    return {
        **facts.head(platform_url),
        "model": {"id": run.base_model_id, "model_name": run.model_path},
        "dataset": {"id": run.dataset_id, "file_name": facts.dataset_name},
        "rollout": {"id": run.rollout_id, "name": run.rollout_name},
        "current_step": run.current_step,
        "total_steps": run.total_steps,
        "reward": run.reward,
    }


def detail(facts: RunFacts, platform_url: str) -> dict[str, Any]:
    """The whole run."""
    run = facts.run
    return {
        "training_run": {
            **facts.head(platform_url),
            "current_step": run.current_step,
            "total_steps": run.total_steps,
            "reward": run.reward,
            "examples_processed_count": run.examples_processed,
            "phase": run.phase,
            "error": run.error,
            "error_type": run.error_type,
            "notes": run.notes if run.error is None else run.error,
        },
        "model": {"id": run.base_model_id, "name": run.model_path},
        "dataset": {"id": run.dataset_id, "name": facts.dataset_name},
        "rollout": {"id": run.rollout_id, "name": run.rollout_name},
        "config": shown_config(run),
        **facts.source(),
    }


def shown_config(run: Run) -> dict[str, Any]:
    """The submitted sections without what was left open."""
    sections = {
        name: {key: value for key, value in section.items() if value is not None}
        for name, section in run.config.items()
        if name != "experiment"
    }
    return {"model_path": run.model_path, **sections}


def metrics(session: Session, run: Run) -> dict[str, Any]:
    """Progress and every metric, thinned out for charts."""
    found = metric_summaries(summaries(session, run.id))
    return {
        "training_run_id": run.id,
        "status": run.status,
        "overview": {
            "duration_ms": duration_ms(run),
            "examples_processed_count": run.examples_processed,
            "latest_step": run.current_step,
            "total_steps": run.total_steps,
            "reward": run.reward,
            "metric_summaries": found,
        },
        "metrics": [
            {
                "metric_key": metric["key"],
                "title": metric["title"],
                "data_points": [
                    {"step": step, "value": value, "timestamp": timestamp}
                    for step, value, timestamp in series(session, run.id, metric["key"]).points
                ],
            }
            for metric in found
        ],
    }


def checkpoints(session: Session, run: Run) -> dict[str, Any]:
    """The checkpoints of a run, by step."""
    models = session.scalars(select(LoraModel).where(LoraModel.run_id == run.id).order_by(LoraModel.step))
    measured = validation_rewards(session, run)
    best = best_step(measured)
    return {
        "training_run_id": run.id,
        "training_run_name": run.name,
        "checkpoints": [
            {
                "id": model.id,
                "checkpoint_step": model.step,
                "checkpoint_name": model.name,
                "status": model.status,
                "reward": model.reward,
                "validation_reward": measured.get(model.step),
                "best": model.step == best,
                "deployment_status": model.deployment_status,
                "created_at": model.created_at.isoformat(),
            }
            for model in models
        ],
    }

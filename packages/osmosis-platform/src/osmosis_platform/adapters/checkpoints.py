"""LoRA models come from the checkpoints of training runs."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from osmosis_platform.adapters.models import LoraModel
from osmosis_platform.errors import InvalidInput
from osmosis_platform.runs.models import Run, RunMetric

VALIDATION_REWARD = "eval/validation/reward"


def record_checkpoint(
    session: Session, run: Run, *, step: int, reward: float | None, blob_sha256: str
) -> LoraModel:
    """The LoRA model of a checkpoint, `<run name>-step-<step>`; reporting a step again changes nothing."""
    if run.kind != "train" or run.base_model_id is None:
        raise InvalidInput("Only training runs have checkpoints.")
    known = session.scalar(select(LoraModel).where(LoraModel.run_id == run.id, LoraModel.step == step))
    if known is not None:
        return known
    model = LoraModel(
        workspace_id=run.workspace_id,
        name=f"{run.name}-step-{step}",
        base_model_id=run.base_model_id,
        run_id=run.id,
        step=step,
        reward=reward,
        blob_sha256=blob_sha256,
    )
    session.add(model)
    session.flush()
    return model


def validation_rewards(session: Session, run: Run) -> dict[int, float]:
    """What each published checkpoint of a run reached on the validation rows, by step, where that was measured."""
    found = session.execute(
        select(RunMetric.step, RunMetric.value)
        .join(LoraModel, (LoraModel.run_id == RunMetric.run_id) & (LoraModel.step == RunMetric.step))
        .where(RunMetric.run_id == run.id, RunMetric.key == VALIDATION_REWARD)
        .order_by(RunMetric.step)
    )
    return {row.step: row.value for row in found}


def best_step(rewards: dict[int, float]) -> int | None:
    """The step with the best validation reward, the first of equal ones; None without any."""
    return max(rewards, key=lambda step: (rewards[step], -step)) if rewards else None

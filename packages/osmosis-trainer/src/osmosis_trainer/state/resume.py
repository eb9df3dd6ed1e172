"""Where a worker begins: at the first step, or after the last one that is on disk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from osmosis_trainer.collect.journal import journal_steps
from osmosis_trainer.collect.order import DataOrder, Split, split_rows
from osmosis_trainer.errors import ConfigError, StateError
from osmosis_trainer.state.run_state import RunState

if TYPE_CHECKING:
    from osmosis_trainer.parts import Parts


@dataclass(frozen=True, slots=True)
class Beginning:
    """The state to go on from, the rows and their order. `resumed` is False for a run that never saved a state. `scores` are
    those of the rollouts that were collected ahead."""

    state: RunState
    split: Split
    order: DataOrder
    resumed: bool
    scores: list[list[float]] | None = None


async def begin(parts: Parts) -> Beginning:
    """Restore the last saved state into the engine, or make a new one.

    Raises StateError when the state belongs to other settings or another dataset, or when a run left journals or
    checkpoints but no state: a run never begins again unnoticed.
    """
    settings = parts.settings
    seed = settings.advanced.seed
    split = split_rows(parts.rows, settings.validation_rows(parts.rows), seed)
    if not split.training:
        raise ConfigError("the dataset has no rows to train on")
    saved = await parts.states.restore(parts.engine, settings)
    if saved is None:
        _refuse_traces(parts)
        order = DataOrder(split.training, seed)
        new = RunState(settings.shaping(), order.digest(), settings.total_steps(len(split.training)))
        return Beginning(new, split, order, resumed=False)
    order = DataOrder(split.training, seed, saved.state.position)
    if saved.state.order_digest != order.digest():
        raise StateError(
            "the dataset has other rows than the run was started with; restore it or start a new run"
        )
    return Beginning(saved.state, split, order, resumed=True, scores=saved.scores)


def _refuse_traces(parts: Parts) -> None:
    trained = [step for step in journal_steps(parts.journals) if step > 0]
    if trained or any(parts.checkpoints.glob("step-*")):
        raise StateError(
            f"{parts.work_dir} has journals or checkpoints of a run but no saved state; "
            "restore its folder 'state' from a backup or start a new run"
        )

"""Where a run stands after a step, and the store that keeps it: saved whole, restored whole or not at all."""

from __future__ import annotations

import json
import logging
import platform
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from osmosis_trainer.engines.protocol import Engine
from osmosis_trainer.errors import StateError
from osmosis_trainer.settings import RunSettings
from osmosis_trainer.state.folder import atomic_folder, verify
from osmosis_trainer.state.formats import FORMAT, ForeignStateError, read_content, require_same

logger = logging.getLogger(__name__)

KEPT_STATES = 2
_PACKAGES = ("osmosis-trainer", "torch", "transformers", "peft")
_SCORES = "scores.npz"


@dataclass(slots=True)
class RunState:
    """Everything of a run that is not inside the engine. `step` counts finished steps; the learning rate of a step
    follows from its number.

    `settings` are those that shape the numbers. `position` is the place in the data order from which the next step takes
    its rows, `order_digest` the hash of the open epoch's order there. `reward` is the mean training reward of the step.
    `best` is the best validation reward with its step. `last_checkpoint` is the step of the newest checkpoint, -1 without
    any. `ahead_version` is the policy version that sampled the rollouts of the next step, None when they are not
    collected yet.
    """

    settings: dict[str, dict[str, Any]]
    order_digest: str
    total_steps: int
    step: int = 0
    position: int = 0
    examples_processed: int = 0
    non_finite_in_a_row: int = 0
    health: list[dict[str, Any]] = field(default_factory=list)
    advice: dict[str, Any] = field(default_factory=dict)
    reward: float | None = None
    best: dict[str, float] | None = None
    last_checkpoint: int = -1
    ahead_version: int | None = None
    versions: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Saved:
    """What a saved state holds beside the engine's part. `scores` belong to the rollouts collected ahead (`Gathered`)."""

    state: RunState
    scores: list[list[float]] | None


class StateStore:
    """Keeps the last KEPT_STATES states of a run as folders `step-<n>` with `run.json` and the engine's own files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def steps(self) -> list[int]:
        """Steps that have a state, ascending."""
        return sorted(int(path.name.removeprefix("step-")) for path in self.folder.glob("step-*"))

    async def save(
        self, state: RunState, engine: Engine, scores: Sequence[Sequence[float]] | None = None
    ) -> None:
        """Write the state of a finished step; it counts once the call returns. Older ones beyond two are dropped."""
        state.versions = _versions()
        async with atomic_folder(self.folder / f"step-{state.step}") as draft:
            await engine.save_state(draft / "engine")
            (draft / "run.json").write_text(json.dumps({"format": FORMAT, **asdict(state)}, indent=1))
            if scores is not None:
                np.savez(
                    draft / _SCORES,
                    lengths=np.array([len(row) for row in scores], dtype=np.int64),
                    values=np.array([value for row in scores for value in row], dtype=np.float64),
                )
        for step in self.steps()[:-KEPT_STATES]:
            shutil.rmtree(self.folder / f"step-{step}")

    async def restore(self, engine: Engine, settings: RunSettings) -> Saved | None:
        """Load the newest state that is whole; None when the run has none yet.

        A damaged state is set aside with a warning and the one before it is used: its step is simply done again.
        Raises StateError when every state is damaged, or when the state belongs to other settings or to a later version of
        the trainer: a run never begins again unnoticed.
        """
        damaged: list[str] = []
        for step in reversed(self.steps()):
            folder = self.folder / f"step-{step}"
            try:
                verify(folder)
                content = read_content(folder / "run.json", settings)
                state = RunState(**content)
            except ForeignStateError:
                raise
            except (StateError, TypeError) as error:
                logger.error("state of step %d cannot be used: %s", step, error)
                damaged.append(str(error))
                continue
            require_same(folder, state.settings, settings)
            await engine.load_state(folder / "engine")
            _warn_about_versions(state.versions)
            return Saved(state, _read_scores(folder / _SCORES))
        if damaged:
            raise StateError(f"no saved state of the run can be used: {'; '.join(damaged)}")
        return None


def _read_scores(path: Path) -> list[list[float]] | None:
    if not path.exists():
        return None
    with np.load(path) as content:
        ends = np.cumsum(content["lengths"])[:-1]
        return [row.tolist() for row in np.split(content["values"], ends)]


@cache
def _versions() -> dict[str, str]:
    return {"python": platform.python_version()} | {name: version(name) for name in _PACKAGES}


def _warn_about_versions(saved: dict[str, str]) -> None:
    for name, current in _versions().items():
        if saved.get(name) != current:
            logger.warning(
                "the state was written with %s %s and is continued with %s: numbers may differ in the last digits",
                name,
                saved.get(name),
                current,
            )

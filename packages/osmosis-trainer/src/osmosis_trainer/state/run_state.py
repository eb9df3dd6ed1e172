"""Where a run stands after a step, and the store that keeps it: saved whole, restored whole or not at all."""

from __future__ import annotations

import json
import logging
import platform
import shutil
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from osmosis_trainer.engines.protocol import Engine
from osmosis_trainer.errors import StateError
from osmosis_trainer.state.folder import atomic_folder, verify

logger = logging.getLogger(__name__)

FORMAT = 1
KEPT_STATES = 2
_PACKAGES = ("osmosis-trainer", "torch", "transformers", "peft")


@dataclass(slots=True)
class RunState:
    """Everything of a run that is not inside the engine. `step` counts finished steps; the learning rate of a step
    follows from its number.

    `position` is the place in the data order, `order_digest` the hash of the open epoch's order. `reward` is the mean
    training reward of the step. `best` is the best validation reward with its step. `last_checkpoint` is the step of
    the newest checkpoint, -1 without any.
    """

    config_digest: str
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
    versions: dict[str, str] = field(default_factory=dict)


class StateStore:
    """Keeps the last KEPT_STATES states of a run as folders `step-<n>` with `run.json` and the engine's own files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def steps(self) -> list[int]:
        """Steps that have a state, ascending."""
        return sorted(int(path.name.removeprefix("step-")) for path in self.folder.glob("step-*"))

    async def save(self, state: RunState, engine: Engine) -> None:
        """Write the state of a finished step; it counts once the call returns. Older ones beyond two are dropped."""
        state.versions = _versions()
        async with atomic_folder(self.folder / f"step-{state.step}") as draft:
            await engine.save_state(draft / "engine")
            (draft / "run.json").write_text(json.dumps({"format": FORMAT, **asdict(state)}, indent=1))
        for step in self.steps()[:-KEPT_STATES]:
            shutil.rmtree(self.folder / f"step-{step}")

    async def restore(self, engine: Engine, *, config_digest: str) -> RunState | None:
        """Load the newest state that is whole; None when the run has none yet.

        A damaged state is set aside with a warning and the one before it is used: its step is simply done again.
        Raises StateError when every state is damaged or when the state belongs to other settings: a run never begins
        again unnoticed.
        """
        damaged: list[str] = []
        for step in reversed(self.steps()):
            folder = self.folder / f"step-{step}"
            try:
                verify(folder)
                state = _read(folder / "run.json")
            except StateError as error:
                logger.error("state of step %d cannot be used: %s", step, error)
                damaged.append(str(error))
                continue
            if state.config_digest != config_digest:
                raise StateError(
                    f"{folder} belongs to a run with other settings; restore the settings or start a new run"
                )
            await engine.load_state(folder / "engine")
            _warn_about_versions(state.versions)
            return state
        if damaged:
            raise StateError(f"no saved state of the run can be used: {'; '.join(damaged)}")
        return None


def _read(path: Path) -> RunState:
    try:
        content = json.loads(path.read_text())
        if content.pop("format") != FORMAT:
            raise StateError(
                f"{path} has another format than {FORMAT}; it was written by another version of the trainer"
            )
        return RunState(**content)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StateError(f"{path} is not a run state: {error}") from error


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

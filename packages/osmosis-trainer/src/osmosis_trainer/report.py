"""What the run tells the platform: log lines, progress, metrics, sample trajectories and checkpoints."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

from osmosis_trainer.collect.attempt import Attempt
from osmosis_trainer.collect.batch import Batch
from osmosis_trainer.collect.groups import PromptGroup
from osmosis_trainer.deadline import within
from osmosis_trainer.gateway.trace import SessionTrace
from osmosis_trainer.sample_files import SampleFiles
from osmosis_trainer.state.checkpoint import Checkpoint

FLUSH_DEADLINE_S = 600.0
SAMPLES_PER_STEP = 4

Level = Literal["info", "warning", "error"]


class RunEvents(Protocol):
    """The part of `osmosis_ai.worker.run_client.RunClient` that the loop uses."""

    def log(self, message: str, *, level: Level = "info", step: str = "init") -> None: ...
    def progress(self, **fields: Any) -> None: ...
    def metrics(self, step: int, values: Mapping[str, float]) -> None: ...
    def sample(self, **fields: Any) -> None: ...
    async def checkpoint(self, **fields: Any) -> None: ...
    async def put_blob(self, content: bytes) -> str: ...
    async def flush(self) -> None: ...


class Report:
    """Events of one run, in the shapes of the run API. All of them may be sent twice. `view` makes a trace readable, `files` are
    those that the rollouts wrote."""

    def __init__(
        self, events: RunEvents, view: Callable[[SessionTrace], dict[str, Any]], files: SampleFiles
    ) -> None:
        self._events = events
        self._view = view
        self._files = files

    def log(self, message: str, *, level: Level = "info", step: str = "train") -> None:
        """One line of the run log."""
        self._events.log(message, level=level, step=step)

    def progress(self, phase: str, step: int, total_steps: int, examples: int) -> None:
        """Where the run is; `examples` counts finished samples."""
        self._events.progress(
            phase=phase, current_step=step, total_steps=total_steps, examples_processed=examples
        )

    def metrics(self, step: int, values: dict[str, float]) -> None:
        """Numbers of a step."""
        if values:
            self._events.metrics(step, values)

    async def samples(self, step: int, groups: Sequence[PromptGroup], batch: Batch) -> None:
        """A few trajectories of the step with their tokens, and the files of their rollouts."""
        for attempt in telling_samples(groups, batch):
            advantage = batch.advantages.get(attempt.rollout_id)
            content = json.dumps(self._trajectory(attempt, advantage)).encode()
            artifacts = await self._files.store(attempt, self._events.put_blob)
            self._events.sample(
                step=step,
                row_index=attempt.row_index,
                sample_index=attempt.sample_index,
                rollout_id=attempt.rollout_id,
                reward=attempt.reward,
                advantage=advantage,
                blob=await self._put(content, f"the upload of sample trajectories of step {step}"),
                artifacts=artifacts,
            )

    async def checkpoint(self, checkpoint: Checkpoint, reward: float | None, *, final: bool) -> None:
        """Publish a checkpoint; `reward` is the training reward of its step."""
        blob = await self._put(checkpoint.tar, f"the upload of the checkpoint of step {checkpoint.step}")
        async with within(FLUSH_DEADLINE_S, f"the delivery of the checkpoint of step {checkpoint.step}"):
            await self._events.checkpoint(
                step=checkpoint.step, blob=blob, path=str(checkpoint.folder), final=final, reward=reward
            )

    async def flush(self) -> None:
        """Wait until the platform has accepted everything."""
        async with within(FLUSH_DEADLINE_S, "the delivery of events to the platform"):
            await self._events.flush()

    async def _put(self, content: bytes, what: str) -> str:
        async with within(FLUSH_DEADLINE_S, what):
            return await self._events.put_blob(content)

    def _trajectory(self, attempt: Attempt, advantage: float | None) -> dict[str, Any]:
        """Its calls come last: a page of a long one reads what is before them, and some of them."""
        return {
            "row_index": attempt.row_index,
            "sample_index": attempt.sample_index,
            "outcome": attempt.outcome,
            "reason": None if attempt.outcome == "graded" else attempt.reason,
            "reward": attempt.reward,
            "advantage": advantage,
            **self._view(attempt.trace),
        }


def telling_samples(groups: Sequence[PromptGroup], batch: Batch) -> list[Attempt]:
    """The worst and the best sample of the first groups that were trained, then of those that were not; at most
    SAMPLES_PER_STEP."""
    ordered = sorted(groups, key=lambda group: (group.verdict != "trained", group.slot))
    chosen: list[Attempt] = []
    for group in ordered:
        ranked = sorted(group.samples, key=lambda sample: batch.advantages.get(sample.rollout_id, 0.0))
        chosen += [ranked[0], ranked[-1]] if len(ranked) > 1 else ranked
        if len(chosen) >= SAMPLES_PER_STEP:
            break
    return chosen[:SAMPLES_PER_STEP]


def step_line(step: int, total_steps: int, groups: Sequence[PromptGroup], values: Mapping[str, float]) -> str:
    """One line for people: `step 3/20 reward 0.41 ...`."""
    samples = [sample for group in groups for sample in group.samples]
    left_out = [
        f"{count} {outcome}"
        for outcome in ("invalid", "failed", "skipped")
        if (count := sum(sample.outcome == outcome for sample in samples))
    ]
    trained = sum(group.verdict == "trained" for group in groups)
    parts = [
        f"step {step}/{total_steps}",
        f"reward {values['rollout/raw_reward']:.3f}" if "rollout/raw_reward" in values else "no reward",
        f"{len(samples)} rollouts" + (f" ({', '.join(left_out)})" if left_out else ""),
        f"{trained} of {len(groups)} groups trained",
    ]
    parts += [
        f"{label} {values[key]:.4g}"
        for label, key in (("loss", "train/loss"), ("entropy", "train/entropy_loss"), ("lr", "train/lr"))
        if key in values
    ]
    return " · ".join([*parts, f"{values['perf/step_seconds']:.1f} s"])

"""The training loop: collect rollouts, learn from them, publish the policy, report, save.

A step is durable as a whole: it is reported, then its state is saved. A worker that is killed anywhere continues from
the last saved state, takes the finished attempts of the open steps from their journals, and reaches the same numbers.

With [advanced] max_staleness = 1 the rollouts of the next step are collected while the gradient of this one is computed:
the policy moves only when both are complete, so every rollout is sampled by one policy, known beforehand.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from osmosis_trainer.advice import Advisor
from osmosis_trainer.collect.batch import Batch
from osmosis_trainer.collect.gathered import Gathered
from osmosis_trainer.collect.groups import PromptGroup
from osmosis_trainer.collect.health import HealthWindow, StepHealth
from osmosis_trainer.collect.journal import Journal, drop_journals
from osmosis_trainer.collect.stop import StoppedError
from osmosis_trainer.evaluation import evaluate
from osmosis_trainer.gather import collect
from osmosis_trainer.learn import accumulate, score, update, use_scores
from osmosis_trainer.metrics import Stopwatch, ledger_metrics, performance, rollout_metrics
from osmosis_trainer.overlap import side_by_side
from osmosis_trainer.parts import Parts
from osmosis_trainer.report import step_line
from osmosis_trainer.state.checkpoint import (
    drop_checkpoints,
    is_unpublished,
    read_checkpoint,
    write_checkpoint,
)
from osmosis_trainer.state.resume import Beginning, begin
from osmosis_trainer.state.run_state import RunState
from osmosis_trainer.worker import run_training_worker


async def train(parts: Parts) -> None:
    """Train one run to its end; raises StoppedError, with everything saved, when a stop was asked for."""
    start = await begin(parts)
    run = Training(parts, start)
    await run.introduce()
    try:
        while run.state.step < run.state.total_steps:
            parts.stop.check()
            await run.step(run.state.step + 1)
    except StoppedError:
        await run.save_stopped()
        raise
    finally:
        run.close()
    run.progress("finalize")
    await parts.report.flush()


def main() -> int:
    """The training worker, `python -m osmosis_trainer train`; returns its exit status."""
    return run_training_worker(train)


@dataclass(slots=True)
class Training:
    """A run between its first and its last step."""

    parts: Parts
    start: Beginning
    _ahead: Gathered | None = None
    _save_s: float = 0.0

    @property
    def state(self) -> RunState:
        return self.start.state

    async def introduce(self) -> None:
        """Say where the run begins; a new run measures the untrained policy and saves its first state."""
        parts, state, split = self.parts, self.state, self.start.split
        if self.start.resumed:
            parts.report.log(f"resumed after step {state.step}/{state.total_steps}", step="init")
            self.progress("train")
            return
        self.progress("init")
        parts.report.log(
            f"{state.total_steps} steps, {len(split.training)} training rows, {len(split.validation)} validation rows",
            step="init",
        )
        for warning in parts.settings.warnings(tiny_model=parts.tiny_model):
            parts.report.log(warning, level="warning", step="init")
        with Journal(parts.journals, 0) as journal:
            parts.report.metrics(0, await self.evaluate(0, journal, Stopwatch()))
        await parts.report.flush()
        await self.save(0)

    async def step(self, step: int) -> None:
        """Collect, learn, evaluate, checkpoint, report, save."""
        parts, state, settings, watch = self.parts, self.state, self.parts.settings, Stopwatch()
        last = step == state.total_steps
        gathered = await self.gathered(step, watch)
        groups = gathered.groups
        with gathered.journal as journal:
            health = HealthWindow.load(state.health)
            health.add(StepHealth.of(groups), last_step=last)
            values = rollout_metrics(groups, parts.engine.policy_version)
            values |= ledger_metrics(gathered.batch.ledger)
            learning = accumulate(parts, step, gathered.batch, watch)
            if settings.advanced.max_staleness and not last:
                collecting = collect(parts, self.start.order, step + 1)
                gradient, ahead = await side_by_side(learning, collecting, watch)
                self._ahead = ahead
                await score(parts, ahead)
            else:
                gradient = await learning
            values |= await update(parts, state, gathered, gradient, watch)
            if last or step % settings.checkpoints.eval_interval == 0:
                values |= await self.evaluate(step, journal, watch)
        state.health, state.reward = health.dump(), values.get("rollout/raw_reward")
        state.examples_processed += sum(len(group.samples) for group in groups)
        with watch.part("checkpoint"):
            await self.checkpoints(step, last=last)
        self.advise(step, values)
        values |= performance(groups, gathered.batch, watch, self._save_s)
        await self.tell(step, groups, gathered.batch, values)
        await self.save(step)

    async def gathered(self, step: int, watch: Stopwatch) -> Gathered:
        """The rollouts of a step: collected ahead, in this process or before it was killed, or now."""
        found, self._ahead = self._ahead, None
        order, version = self.start.order, self.state.ahead_version
        if found is None and version is not None:
            found = await collect(self.parts, order, step, finished_by=version)
            if self.start.scores is not None:
                use_scores(self.parts, found, self.start.scores)
        if found is None:
            with watch.part("wait"):
                found = await collect(self.parts, order, step)
        watch.add("sample", found.seconds)
        return found

    async def evaluate(self, step: int, journal: Journal, watch: Stopwatch) -> dict[str, float]:
        """Measure the validation rows; again, from where it was, when the disk was full meanwhile."""
        rows = self.start.split.validation
        return await self.parts.with_room(
            f"the evaluation of step {step}",
            lambda: evaluate(self.parts, self.state, step, rows, journal, watch),
        )

    async def checkpoints(self, step: int, *, last: bool) -> None:
        """Publish the adapter when it is due, and keep the best one: it is published with the last."""
        save_freq, state = self.parts.settings.checkpoints.checkpoint_save_freq, self.state
        best = int(state.best["step"]) if state.best else 0
        if last and is_unpublished(best, step, save_freq):
            await self.publish_best(best)
        if last or step % save_freq == 0:
            await self.checkpoint(step, final=last)
        elif step == best:
            await self.write_checkpoint(step)
        if state.best and step == best and state.reward is not None:
            state.best["training_reward"] = state.reward
        drop_checkpoints(
            self.parts.checkpoints, self.parts.settings.advanced.keep_checkpoints, keep_also=best
        )

    async def checkpoint(self, step: int, *, final: bool) -> None:
        """Write and publish the adapter as it is after `step`."""
        await self.write_checkpoint(step)
        checkpoint = read_checkpoint(self.parts.checkpoints, step)
        await self.parts.report.checkpoint(checkpoint, self.state.reward, final=final)
        self.state.last_checkpoint = step

    async def write_checkpoint(self, step: int) -> None:
        """Write the adapter as it is after `step`."""
        parts = self.parts
        await parts.with_room(
            f"the checkpoint of step {step}", lambda: write_checkpoint(parts.checkpoints, step, parts.engine)
        )

    async def publish_best(self, step: int) -> None:
        """Publish the adapter with the best validation reward, written after that step, where it is not published yet."""
        if not (self.parts.checkpoints / f"step-{step}").exists():
            return  # the state is of a version that did not keep it
        checkpoint = read_checkpoint(self.parts.checkpoints, step)
        reward = (self.state.best or {}).get("training_reward")
        await self.parts.report.checkpoint(checkpoint, reward, final=False)

    def advise(self, step: int, values: dict[str, float]) -> None:
        """Log early warning signs."""
        advisor = Advisor.load(self.state.advice)
        for text in advisor.look(step, values):
            self.parts.report.log(text, level="warning", step="advice")
        self.state.advice = advisor.dump()

    async def tell(
        self, step: int, groups: Sequence[PromptGroup], batch: Batch, values: dict[str, float]
    ) -> None:
        """Send everything about a step and wait until the platform has it."""
        report = self.parts.report
        report.metrics(step, values)
        report.log(step_line(step, self.state.total_steps, groups, values))
        await report.samples(step, groups, batch)
        self.progress("train", step)
        await report.flush()

    async def save(self, step: int) -> None:
        """Make the step count. Journals that no kept state needs are dropped."""
        began, state, parts, ahead = time.perf_counter(), self.state, self.parts, self._ahead
        state.step, order = step, self.start.order
        # Rollouts collected ahead are taken from the journal again: the order goes on from where they began.
        state.position = ahead.position if ahead else order.position
        state.order_digest = ahead.order_digest if ahead else order.digest()
        state.ahead_version = ahead.version if ahead else None
        scores = ahead.scores if ahead else None
        await parts.with_room(
            f"the state of step {step}", lambda: parts.states.save(state, parts.engine, scores)
        )
        drop_journals(parts.journals, before=step)
        self._save_s = time.perf_counter() - began

    async def save_stopped(self) -> None:
        """After a stop request: publish the policy of the last finished step unless that was done."""
        state = self.state
        self.parts.report.log(
            f"stopping after step {state.step}/{state.total_steps}: {self.parts.stop.reason}"
        )
        best = int(state.best["step"]) if state.best else 0
        if is_unpublished(best, state.step, self.parts.settings.checkpoints.checkpoint_save_freq):
            await self.publish_best(best)
        if state.step > max(state.last_checkpoint, 0):
            await self.checkpoint(state.step, final=True)
        self.progress("finalize")
        await self.parts.report.flush()

    def close(self) -> None:
        """Close what a step that did not end has left open."""
        if self._ahead is not None:
            self._ahead.journal.close()

    def progress(self, phase: str, step: int | None = None) -> None:
        """Tell the platform where the run is."""
        state = self.state
        self.parts.report.progress(
            phase, state.step if step is None else step, state.total_steps, state.examples_processed
        )

"""Is the run still about the policy? Counts samples without a score over the last steps and ends a run that only fails."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from osmosis_trainer.collect.groups import PromptGroup
from osmosis_trainer.errors import TrainerError

WINDOW_STEPS = 3
INVALID_LIMIT = 0.2
# A step of at least this many samples, all of them invalid, leaves no doubt: the run ends at once.
CERTAIN_SAMPLES = 8
_TOP_REASONS = 3
_REASON_LENGTH = 300


class UnhealthyRunError(TrainerError):
    """Too many rollouts ended without a reward to go on; the message has the most frequent reasons."""

    code = "too_many_invalid"


@dataclass(frozen=True, slots=True)
class StepHealth:
    """Samples of one step: `counted` leaves out the skipped ones; `reasons` are those of invalid and failed ones."""

    counted: int
    invalid: int
    graded: int
    reasons: dict[str, int]

    @classmethod
    def of(cls, groups: Sequence[PromptGroup]) -> StepHealth:
        samples = [sample for group in groups for sample in group.samples if sample.outcome != "skipped"]
        bad = [sample for sample in samples if sample.outcome in ("invalid", "failed")]
        return cls(
            counted=len(samples),
            invalid=sum(sample.outcome == "invalid" for sample in samples),
            graded=sum(sample.outcome == "graded" for sample in samples),
            reasons=dict(Counter(sample.reason[:_REASON_LENGTH] for sample in bad)),
        )


@dataclass(slots=True)
class HealthWindow:
    """The last WINDOW_STEPS steps; part of the saved state."""

    steps: list[StepHealth] = field(default_factory=list)

    def add(self, health: StepHealth, *, last_step: bool) -> None:
        """Take in a step. Raises UnhealthyRunError when the window is full, or the run ends, and it looks bad."""
        if health.counted >= CERTAIN_SAMPLES and health.invalid == health.counted:
            self.steps = [health]
            self._judge()
        self.steps = [*self.steps, health][-WINDOW_STEPS:]
        if len(self.steps) == WINDOW_STEPS or last_step:
            self._judge()

    def _judge(self) -> None:
        counted = sum(step.counted for step in self.steps)
        invalid = sum(step.invalid for step in self.steps)
        span = f"the last {len(self.steps)} steps" if len(self.steps) > 1 else "the last step"
        if counted == 0:
            raise UnhealthyRunError(
                f"the grader removed every sample of {span}; there is nothing to train on"
            )
        if invalid > INVALID_LIMIT * counted:
            raise UnhealthyRunError(
                f"{invalid} of {counted} samples of {span} ended without a reward (limit {INVALID_LIMIT:.0%}). {self._top()}"
            )
        if not any(step.graded for step in self.steps):
            raise UnhealthyRunError(
                f"the agent failed in every one of the {counted} samples of {span}. {self._top()}"
            )

    def _top(self) -> str:
        total: Counter[str] = Counter()
        for step in self.steps:
            total.update(step.reasons)
        return "Most frequent: " + "; ".join(
            f"{count} x {reason}" for reason, count in total.most_common(_TOP_REASONS)
        )

    def dump(self) -> list[dict[str, Any]]:
        """Plain values for the saved state."""
        return [
            {"counted": step.counted, "invalid": step.invalid, "graded": step.graded, "reasons": step.reasons}
            for step in self.steps
        ]

    @classmethod
    def load(cls, content: Sequence[dict[str, Any]]) -> HealthWindow:
        """Inverse of `dump`."""
        return cls([StepHealth(**step) for step in content])

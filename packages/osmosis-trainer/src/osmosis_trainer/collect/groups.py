"""Prompt groups: the samples of one row, what each is worth, and whether the group has anything to teach."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from osmosis_trainer.collect.attempt import Attempt

# `trained`: rewards differ. `zero_variance`: all equal, so every advantage is 0. `too_few_valid`: fewer than two
# samples with a score, so there is no baseline.
Verdict = Literal["trained", "zero_variance", "too_few_valid"]

_EQUAL_REWARDS = 1e-9


@dataclass(frozen=True, slots=True)
class PromptGroup:
    """The last attempt of every sample of one row, in sample order; `tries` are all attempts, retries too."""

    slot: int
    row_index: int
    samples: list[Attempt]
    tries: list[Attempt]

    @property
    def scores(self) -> dict[int, float]:
        """Reward per sample index, of the samples that have one.

        A sample whose agent failed by the policy's doing was not graded. It is worth as much as the worst graded
        sample of its group and never more than 0, so failing is never better than answering, on any reward scale.
        """
        graded = {sample.sample_index: sample.reward for sample in self.samples if sample.outcome == "graded"}
        rewards = {index: reward for index, reward in graded.items() if reward is not None}
        floor = min([0.0, *rewards.values()])
        failed = {sample.sample_index: floor for sample in self.samples if sample.outcome == "failed"}
        return dict(sorted((rewards | failed).items()))

    @property
    def verdict(self) -> Verdict:
        scores = self.scores.values()
        if len(scores) < 2:
            return "too_few_valid"
        return "trained" if max(scores) - min(scores) > _EQUAL_REWARDS else "zero_variance"

"""The collected rollouts of one step, from the moment they are complete until they are learned from."""

from __future__ import annotations

from dataclasses import dataclass, field

from osmosis_trainer.collect.batch import Batch
from osmosis_trainer.collect.groups import PromptGroup
from osmosis_trainer.collect.journal import Journal


@dataclass(slots=True)
class Gathered:
    """`version` is the policy version that sampled. `position` and `order_digest` are the place in the data order before
    the step took its rows. `seconds` is what collecting took. `scores` are the learner's log-probabilities of the
    trained tokens under that policy, row by row, when they were computed; `mismatch` compares them with the sampler's.
    """

    step: int
    journal: Journal
    groups: list[PromptGroup]
    batch: Batch
    version: int
    position: int
    order_digest: str
    seconds: float
    scores: list[list[float]] | None = None
    mismatch: dict[str, float] = field(default_factory=dict)

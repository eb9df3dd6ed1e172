"""The values of collection: what is to be run (`AttemptKey`) and what came of it (`Attempt`)."""

from __future__ import annotations

from typing import Literal, NamedTuple

from pydantic.dataclasses import dataclass

from osmosis_trainer.collect.order import derive_seed
from osmosis_trainer.gateway.trace import SessionTrace

Phase = Literal["train", "eval"]

# What an attempt says about the policy:
#   graded   the grader gave a finite reward
#   failed   the agent made model calls and then ended without a result (an error or its time limit): the policy's doing
#   skipped  the grader removed the sample, or the prompt is too long to be asked; it counts nowhere
#   invalid  anything else, infrastructure first of all: says nothing about the policy and never becomes a score
Outcome = Literal["graded", "failed", "skipped", "invalid"]


class AttemptKey(NamedTuple):
    """Names one attempt within a run. `slot` is the position of the prompt group in its step: a row that comes up
    twice in a step is two groups. `attempt` counts the tries of a sample from 0."""

    phase: Phase
    step: int
    slot: int
    row_index: int
    sample_index: int
    attempt: int

    def seed(self, run_seed: int) -> int:
        """Sampling seed of the attempt's model calls."""
        return derive_seed("attempt", run_seed, *self)

    def __str__(self) -> str:
        return "/".join(map(str, self))


@dataclass(frozen=True, slots=True)
class Attempt:
    """One finished attempt, exactly as it lies in the journal.

    `retry`: another try under a fresh rollout id may do better (infrastructure). `reward` is finite with outcome
    `graded` and None otherwise. `trace` has every model call token for token.
    """

    phase: Phase
    step: int
    slot: int
    row_index: int
    sample_index: int
    attempt: int
    outcome: Outcome
    retry: bool
    reward: float | None
    error_type: str | None
    error_message: str | None
    duration_ms: float
    trace: SessionTrace

    @property
    def key(self) -> AttemptKey:
        return AttemptKey(self.phase, self.step, self.slot, self.row_index, self.sample_index, self.attempt)

    @property
    def rollout_id(self) -> str:
        return self.trace.rollout_id

    @property
    def reason(self) -> str:
        """Why there is no reward, in few words."""
        text = self.error_type or self.outcome
        return f"{text}: {self.error_message}" if self.error_message else text

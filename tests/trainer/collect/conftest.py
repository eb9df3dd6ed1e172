"""Attempts with chosen outcomes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from osmosis_trainer.collect.attempt import Attempt, AttemptKey
from osmosis_trainer.collect.groups import PromptGroup
from osmosis_trainer.gateway.trace import Branch, CallRecord, SessionTrace


@pytest.fixture
def attempt() -> Callable[..., Attempt]:
    """An attempt with two prompt tokens and four sampled ones; `reward` None without an outcome makes it invalid."""

    def make(
        sample: int = 0,
        reward: float | None = None,
        outcome: str = "",
        *,
        number: int = 0,
        slot: int = 0,
        truncated: bool = False,
        message: str = "it broke",
    ) -> Attempt:
        outcome = outcome or ("invalid" if reward is None else "graded")
        call = CallRecord(
            index=0,
            parent=None,
            branch=Branch.ROOT,
            context_ids=[7, 8],
            token_ids=[1, 2, 3, 4],
            logprobs=[-0.1, -0.2, -0.3, -0.1 / 3],
            policy_version=0,
            seed=1,
            temperature=1.0,
            top_p=1.0,
            max_tokens=8,
            finish_reason="length" if truncated else "stop",
            truncated=truncated,
            outcome="text",
            messages=[{"role": "user", "content": message}],
            answer={"role": "assistant", "content": "..."},
            tool_set=0,
            cached_tokens=0,
            started_s=0.0,
            seconds=0.001,
        )
        return Attempt(
            **AttemptKey("train", 1, slot, 40 + slot, sample, number)._asdict(),
            outcome=outcome,
            retry=outcome == "invalid",
            reward=reward,
            error_type=None if outcome == "graded" else "agent_error",
            error_message=None if outcome == "graded" else message,
            duration_ms=12.5,
            trace=SessionTrace(f"r{slot}-{sample}-{number}", 3, (call,), ([],)),
        )

    return make


@pytest.fixture
def group(attempt: Callable[..., Attempt]) -> Callable[..., PromptGroup]:
    """A group from rewards; a string is an outcome without reward."""

    def make(*rewards: float | str, slot: int = 0) -> PromptGroup:
        samples = [
            attempt(index, None, value, slot=slot)
            if isinstance(value, str)
            else attempt(index, value, slot=slot)
            for index, value in enumerate(rewards)
        ]
        return PromptGroup(slot, 40 + slot, samples, samples)

    return make

"""A policy that takes no time: it always says the same tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from osmosis_trainer.engines.protocol import Completion, SamplingParams

ANSWER = "The product of the two numbers is 3127, as the multiply tool says."


class ScriptedEngine:
    """The sampling half of the engine protocol."""

    name = "scripted"
    capabilities = frozenset({"sample"})
    max_context = 2048
    policy_version = 1

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self._answer: list[int] = tokenizer(ANSWER + "<|im_end|>")["input_ids"]

    async def sample(
        self,
        prompt_ids: Sequence[int],
        params: SamplingParams,
        *,
        adapter: str | None = "policy",
        on_token: Callable[[int, float], None] | None = None,
    ) -> Completion:
        """The answer, after the event loop had a turn."""
        await asyncio.sleep(0)
        ids = list(self._answer)
        return Completion(ids, [-0.25] * len(ids), "stop", self.policy_version)

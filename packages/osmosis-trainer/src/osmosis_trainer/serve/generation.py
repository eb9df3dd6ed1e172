"""One request's answers: the prompt, a seed per choice, and all choices sampled side by side."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from osmosis_trainer.chat.answer import Answer, OnDelta, sample_answer
from osmosis_trainer.chat.errors import context_length_exceeded
from osmosis_trainer.chat.request import ChatRequest
from osmosis_trainer.chat.stream import Delta
from osmosis_trainer.engines.protocol import SamplingParams
from osmosis_trainer.serve.registry import ServedModel
from osmosis_trainer.together import together

OnChoiceDelta = Callable[[int, Delta, int, float], None]
"""Called with the choice's index and what `OnDelta` gets."""


@dataclass(frozen=True, slots=True)
class Generation:
    """A request made ready for a model."""

    model: ServedModel
    request: ChatRequest
    prompt_ids: list[int]
    max_tokens: int

    @classmethod
    def prepare(cls, model: ServedModel, request: ChatRequest) -> Generation:
        """Render the prompt; raises ChatRequestError when it leaves no token for the answer.

        `max_tokens` is an upper bound, not a promise: it is cut to what fits the model's context.
        """
        prompt_ids = model.codec.render(request.messages, request.tools)
        room = model.engine.max_context - len(prompt_ids)
        if room < 1:
            raise context_length_exceeded(
                len(prompt_ids), model.engine.max_context, "prompt and answer together may have"
            )
        return cls(model, request, prompt_ids, min(room, request.max_tokens or room))

    async def run(self, on_delta: OnChoiceDelta | None = None) -> list[Answer]:
        """Sample all choices; when one fails the others are cancelled and its error is raised."""
        return await together(self._sample(index, on_delta) for index in range(self.request.n))

    async def _sample(self, index: int, on_delta: OnChoiceDelta | None) -> Answer:
        request = self.request
        watch: OnDelta | None = None
        if on_delta is not None:

            def watch(delta: Delta, token_id: int, logprob: float) -> None:
                on_delta(index, delta, token_id, logprob)

        return await sample_answer(
            self.model.engine,
            self.model.codec,
            self.prompt_ids,
            SamplingParams(
                max_tokens=self.max_tokens,
                temperature=1.0 if request.temperature is None else request.temperature,
                top_p=1.0 if request.top_p is None else request.top_p,
                stop_ids=self.model.codec.stop_ids,
                seed=None if request.seed is None else _choice_seed(request.seed, index),
            ),
            adapter=self.model.adapter,
            offered=request.offered,
            stops=request.stop,
            on_delta=watch,
            parallel_tool_calls=request.parallel_tool_calls,
        )


def _choice_seed(seed: int, index: int) -> int:
    """Choices of one request differ although the client gave one seed."""
    return int.from_bytes(hashlib.blake2b(f"{seed}/{index}".encode(), digest_size=8).digest(), "big") >> 1

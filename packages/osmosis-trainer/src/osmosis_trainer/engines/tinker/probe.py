"""The probe after every publication: what the server samples from must be what it trains."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from osmosis_trainer.engines.protocol import Completion, SamplingParams
from osmosis_trainer.engines.tinker.errors import ProbeError

_PROMPTS, _SHORTEST, _LONGEST, _TOKENS = 8, 3, 24, 8
# Low precision on the server shows as a gap before any training; a later gap may be this much larger.
_GROWTH = 3.0
_HOPELESS = 0.5

Sample = Callable[[Sequence[int], SamplingParams], Awaitable[Completion]]
Score = Callable[[Sequence[Sequence[int]]], Awaitable[list[list[float]]]]


@dataclass(frozen=True, slots=True)
class Gap:
    """Differences, in nats, between the log-probabilities of sampler and learner."""

    largest: float
    mean: float


class Probe:
    """Samples from fixed prompts and scores the tokens with the weights in training.

    `tolerance` is the largest difference that is rounding in float32. The first check, of an adapter that was never
    trained, measures what the server's own precision adds.
    """

    def __init__(self, vocabulary: int, max_context: int, tolerance: float) -> None:
        generator = random.Random(1)
        longest = max(1, min(_LONGEST, max_context - _TOKENS))
        lengths = [generator.randint(min(_SHORTEST, longest), longest) for _ in range(_PROMPTS)]
        self._prompts = [generator.choices(range(vocabulary), k=length) for length in lengths]
        self._vocabulary = vocabulary
        self._tolerance = tolerance
        self._allowed: Gap | None = None

    async def check(self, sample: Sample, score: Score) -> Gap:
        """Compare; raises ProbeError when the two differ by more than is allowed."""
        gap = await self._gap(sample, score)
        if self._allowed is None:
            if gap.largest > _HOPELESS:
                raise ProbeError(
                    f"the server's sampler and learner differ by {gap.largest:.3g} nats for an adapter that was never "
                    "trained: they do not hold the same model"
                )
            floor = self._tolerance
            self._allowed = Gap(max(floor, _GROWTH * gap.largest), max(floor / 4, _GROWTH * gap.mean))
        elif gap.largest > self._allowed.largest or gap.mean > self._allowed.mean:
            raise ProbeError(
                f"the server does not sample from the weights it trains: log-probabilities of fixed prompts differ by "
                f"{gap.largest:.3g} nats ({gap.mean:.3g} on average), {self._allowed.largest:.3g} "
                f"({self._allowed.mean:.3g}) is rounding. It may serve an older version of the adapter"
            )
        return gap

    async def _gap(self, sample: Sample, score: Score) -> Gap:
        samples = await asyncio.gather(
            *(sample(prompt, SamplingParams(_TOKENS, seed=i)) for i, prompt in enumerate(self._prompts))
        )
        strange = [token for each in samples for token in each.token_ids if not 0 <= token < self._vocabulary]
        if strange:
            raise ProbeError(
                f"the server sampled the token {strange[0]}, but the tokenizer of the base model has {self._vocabulary}: "
                "the server's model has another vocabulary"
            )
        sequences = [[*prompt, *each.token_ids] for prompt, each in zip(self._prompts, samples, strict=True)]
        gaps = [
            abs(sampled - scored)
            for each, logprobs in zip(samples, await score(sequences), strict=True)
            for sampled, scored in zip(each.logprobs, logprobs[-len(each.logprobs) :], strict=True)
        ]
        return Gap(max(gaps), sum(gaps) / len(gaps))

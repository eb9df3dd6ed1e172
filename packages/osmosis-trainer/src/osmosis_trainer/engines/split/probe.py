"""Eight fixed prompts that show whether a server samples from the policy that the learner means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from osmosis_trainer.engines.protocol import TrainingRow
from osmosis_trainer.engines.split.wire import SamplerFaultError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

FLOAT32_TOLERANCE = 1e-4
# Half-precision kernels of servers and of the learner differ by some hundredths of a nat on average.
HALF_TOLERANCE = 0.1

_SHORTEST, _LONGEST = 8, 48
_TEXTS = (
    "The capital of France is Paris, and the capital of Italy is Rome.",
    "6 times 7 is 42. 12 times 11 is 132.",
    "def add(left, right):\n    return left + right\n",
    "Question: what is the boiling point of water? Answer: 100 degrees Celsius.",
    '{"name": "multiply", "arguments": {"a": 3, "b": 5}}',
    "Once upon a time there was a king who had three daughters.",
    "First open the file, then read every line, then close it again.",
    "I do not know the answer, but I can look it up for you.",
)

Scores = Sequence[Sequence[float]]


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far server and learner may be apart, in nats: the largest difference in float32, else the mean one."""

    nats: float
    mean: bool

    @classmethod
    def of(cls, dtype: str, wanted: float | None) -> Tolerance:
        """The tolerance for a learner that computes in `dtype`; `wanted` overrides the number."""
        exact = dtype == "float32"
        return cls(wanted or (FLOAT32_TOLERANCE if exact else HALF_TOLERANCE), mean=not exact)


def probe_prompts(tokenizer: PreTrainedTokenizerFast, max_context: int) -> list[list[int]]:
    """The prompts as tokens, cut to what fits the context."""
    longest = min(_LONGEST, max_context - 1)
    prompts = []
    for number, text in enumerate(_TEXTS):
        ids = tokenizer.encode(text, add_special_tokens=False)
        # A vocabulary that has none of these words gets tokens from all over it instead.
        ids += [(31 * place + 17 * number) % len(tokenizer) for place in range(len(ids), _SHORTEST)]
        prompts.append(ids[:longest])
    return prompts


def probe_rows(prompts: Sequence[Sequence[int]]) -> list[TrainingRow]:
    """The prompts as rows that the learner can score: every token but the first."""
    return [
        TrainingRow(list(ids), [0, *[1] * (len(ids) - 1)], [0.0] * len(ids), 0.0, number, f"probe-{number}")
        for number, ids in enumerate(prompts)
    ]


def compare(url: str, got: Scores, expected: Scores, previous: Scores | None, tolerance: Tolerance) -> float:
    """The difference, in nats, between a server's scores and the learner's.

    `previous` are the learner's for the version before. Raises SamplerFaultError when the server is too far from the
    learner, or much nearer to the version before: it serves another adapter than it was asked for.
    """
    gap, mean = _distance(got, expected)
    measured, word = (mean, "mean") if tolerance.mean else (gap, "largest")
    late = False
    if previous is not None:
        _, behind = _distance(got, previous)
        late = behind < mean / 2 and mean > FLOAT32_TOLERANCE
    if late or not measured <= tolerance.nats:
        reason = "it serves an older adapter" if late else "adapter, base model or number format differ"
        raise SamplerFaultError(
            f"the sampling server {url} does not sample from the policy in training: on {len(expected)} fixed prompts "
            f"its log-probabilities differ from the learner's by {measured:.3g} nats ({word}), {tolerance.nats:g} are "
            f"allowed; {reason}"
        )
    return measured


def _distance(left: Scores, right: Scores) -> tuple[float, float]:
    gaps = [abs(a - b) for a, b in zip(chain(*left), chain(*right), strict=True)]
    return max(gaps), sum(gaps) / len(gaps)

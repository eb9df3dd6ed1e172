"""What a server does with a gradient, measured: how it adds up losses, and whether it clips.

Both decide whether a step is the one that was asked for, and no answer of the API tells. A throw-away adapter is moved a
little along the gradient of one row, alone and among rows without a gradient, and the change of the row's
log-probability is compared. With betas of 0 and an epsilon far above the gradient, AdamW moves in proportion to it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from osmosis_trainer.engines.tinker.http import Transport
from osmosis_trainer.engines.tinker.lease import Lease
from osmosis_trainer.engines.tinker.model import Adam, RemoteModel
from osmosis_trainer.engines.tinker.reduction import REDUCTIONS, StepShape, recognise
from osmosis_trainer.engines.tinker.settings import TinkerSettings
from osmosis_trainer.engines.tinker.wire import weighted_datum
from osmosis_trainer.errors import ConfigError

# Predicted tokens of the row that is followed, and of a row without a gradient, and how many of those.
_ROW, _OTHER, _OTHERS = 12, 3, 7
# The change of the row's log-probability, in nats, that is far above rounding and still proportional to the gradient.
_WANTED, _LEAST, _MOST = 0.6, 0.3, 1.5
_FIRST_PUSH, _TRIES = 1e-6, 12
_EPS = 100.0
_TINY_NORM = 1e-12


@dataclass(frozen=True, slots=True)
class Behaviour:
    """`reduction` is one of REDUCTIONS; `clips` says whether `grad_clip_norm` is obeyed."""

    reduction: str
    clips: bool


async def measure(transport: Transport, settings: TinkerSettings, lease: Lease, vocabulary: int) -> Behaviour:
    """Make the trial on a model of its own. Raises ConfigError when the server does nothing that is understood."""
    model = await RemoteModel.create(transport, settings, lease)
    try:
        return await _Trial(model, vocabulary).run()
    finally:
        await model.unload()


class _Trial:
    def __init__(self, model: RemoteModel, vocabulary: int) -> None:
        generator = random.Random(0)

        def tokens(count: int) -> list[int]:
            return generator.choices(range(vocabulary), k=count)

        row = tokens(_ROW + 1)
        self._model = model
        self._alone = [row]
        self._among = [row + tokens(_ROW), *(tokens(_OTHER + 1) for _ in range(_OTHERS))]
        self._push = _FIRST_PUSH

    async def run(self) -> Behaviour:
        before = await self._rate(self._alone)
        among = await self._rate(self._among)
        after = await self._rate(self._alone)
        ratio = 2.0 * among / (before + after)
        reduction = recognise(ratio, _shape(self._alone), _shape(self._among))
        if reduction is None:
            raise ConfigError(
                f"the server adds up losses in a way the engine does not know: other rows change a row's gradient by a "
                f"factor of {ratio:.3g}; known are {', '.join(REDUCTIONS)}"
            )
        expected = after * self._push
        clipped = await self._moved(self._alone, _TINY_NORM)
        return Behaviour(reduction, clips=abs(clipped) < 0.25 * expected)

    async def _rate(self, sequences: Sequence[list[int]]) -> float:
        """Change of the first row's log-probability per unit of its gradient's factor."""
        for _ in range(_TRIES):
            change = await self._moved(sequences)
            if _LEAST <= change <= _MOST:
                return change / self._push
            self._push *= _WANTED / change if change > 0.01 else 16.0
        raise ConfigError(
            f"a trial step on the server changed the log-probability of its row by {change:.3g} nats instead of about "
            f"{_WANTED}: it does not follow the gradient of importance_sampling"
        )

    async def _moved(self, sequences: Sequence[list[int]], max_grad_norm: float = 0.0) -> float:
        scored = await self._model.score(sequences)
        datums = [
            weighted_datum(
                tokens, logprobs, [self._push if n == 0 and i < _ROW else 0.0 for i in range(len(logprobs))]
            )
            for n, (tokens, logprobs) in enumerate(zip(sequences, scored, strict=True))
        ]
        adam = Adam(lr=_EPS, max_grad_norm=max_grad_norm, beta1=0.0, beta2=0.0, eps=_EPS)
        await self._model.train([datums], adam)
        [now] = await self._model.score(sequences[:1])
        return sum(now[:_ROW]) - sum(scored[0][:_ROW])


def _shape(sequences: Sequence[list[int]]) -> tuple[StepShape, int]:
    lengths = [len(tokens) - 1 for tokens in sequences]
    return StepShape(len(lengths), sum(lengths)), lengths[0]

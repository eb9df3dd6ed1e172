"""The passes of a learner's model, as long as it is whole in one process; `learner.sharding` has the other kind."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from osmosis_trainer.learner.logprobs import token_logprobs
from osmosis_trainer.learner.packs import MicroBatch


class WholePasses:
    """Passes of a causal model whose weights are all in this process. `in_step`: other processes make the same passes."""

    in_step = False

    def __init__(self, base: Any) -> None:
        self._base = base

    def logprobs(self, batch: MicroBatch, temperature: float) -> tuple[Tensor, Tensor]:
        """See `token_logprobs`."""
        return token_logprobs(self._base, batch, temperature)

    def agreed(self, count: int) -> int:
        """How many passes to make where `count` are needed here."""
        return count

    def end(self) -> None:
        """No pass follows for now."""

"""What the sampler asks of a model: logits of the last token of each row, with keys and values kept in the cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from osmosis_trainer.engines.local.adapters import LoraWeights
from osmosis_trainer.engines.local.cache import KeyValueCache


@dataclass(slots=True)
class Pass:
    """One forward pass over n rows of w new tokens.

    `ids`, `columns`: [n, w]; a token's column in the cache is also its position. Padding columns point at the bin.
    `slots`: [n] cache slots, or None when row i is slot i. `span`: columns to attend over. `last`: [n] index of each
    row's last real token. `adapters`: which weights which rows use; rows None means all of them.
    """

    ids: Tensor
    columns: Tensor
    slots: Tensor | None
    span: int
    last: Tensor | None
    adapters: list[tuple[LoraWeights | None, Tensor | None]]


class Decoder(Protocol):
    """A model that runs passes."""

    name: str

    def logits(self, batch: Pass, cache: KeyValueCache) -> Tensor:
        """Logits [n, vocabulary] after each row's last token; writes the new keys and values into the cache."""
        ...

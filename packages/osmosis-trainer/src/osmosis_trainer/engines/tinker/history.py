"""What it takes to make a model again that the server lost: the last saved weights and the steps since."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from osmosis_trainer.engines.tinker.gradient import WeightedRow
from osmosis_trainer.engines.tinker.model import Adam


@dataclass(frozen=True, slots=True)
class TrainedStep:
    """One optimizer step: the rows whose derivatives it followed, and how."""

    rows: Sequence[WeightedRow]
    adam: Adam


@dataclass(slots=True)
class History:
    """`checkpoint` None is the fresh adapter; `steps` were done since, the first `published` of them before the last
    publication."""

    checkpoint: str | None = None
    steps: list[TrainedStep] = field(default_factory=list)
    published: int = 0

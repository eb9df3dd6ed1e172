"""How a server adds up the losses of tokens and rows.

The contract is a plain sum, but servers differ: some take the mean of a row, or over the rows of a step. Each is a known
factor per row, so our derivatives are multiplied by its inverse and the gradient is ours again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from osmosis_trainer.engines.tinker.gradient import WeightedRow
from osmosis_trainer.engines.tinker.wire import weighted_datum


@dataclass(frozen=True, slots=True)
class StepShape:
    """What a server may divide by: the rows of a step and all their predicted tokens."""

    rows: int
    positions: int

    @classmethod
    def of(cls, rows: Sequence[WeightedRow]) -> StepShape:
        """The shape of a step of these rows."""
        return cls(len(rows), sum(row.positions for row in rows))


# (shape of the step, predicted tokens of the row) to the factor on the row's losses.
Reduction = Callable[[StepShape, int], float]

REDUCTIONS: dict[str, Reduction] = {
    "sum": lambda shape, positions: 1.0,
    "sum of row means": lambda shape, positions: 1.0 / positions,
    "mean over rows": lambda shape, positions: 1.0 / shape.rows,
    "mean over rows of row means": lambda shape, positions: 1.0 / (shape.rows * positions),
    "mean over tokens": lambda shape, positions: 1.0 / shape.positions,
}
# Measured factors are this far from a known one at most; the known ones are a factor of 1.8 and more apart.
_TOLERANCE = math.log(1.33)


def recognise(ratio: float, first: tuple[StepShape, int], second: tuple[StepShape, int]) -> str | None:
    """The name of the reduction under which a row's gradient in the second step is `ratio` times that in the first."""
    if not ratio > 0 or not math.isfinite(ratio):
        return None
    errors = {
        name: abs(math.log(ratio * factor(*first) / factor(*second))) for name, factor in REDUCTIONS.items()
    }
    best = min(errors, key=errors.__getitem__)
    return best if errors[best] <= _TOLERANCE else None


def step_datums(rows: Sequence[WeightedRow], reduction: str) -> list[dict[str, object]]:
    """The rows of one optimizer step such that the server's gradient is the one of their derivatives."""
    shape, factor = StepShape.of(rows), REDUCTIONS[reduction]
    return [
        weighted_datum(
            row.token_ids,
            row.logprobs,
            [-value / factor(shape, row.positions) for value in row.derivatives],
        )
        for row in rows
    ]

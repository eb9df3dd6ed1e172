"""What happens when a training pass does not fit into memory."""

from __future__ import annotations

import torch

from osmosis_trainer.engines.protocol import TrainingRow
from osmosis_trainer.errors import EngineError

# What torch's allocator says on the CPU, where it has no error of its own.
_CPU_WORDS = ("can't allocate memory", "not enough memory")


class OutOfMemoryError(EngineError):
    """Not even one row fits into memory."""

    code = "out_of_memory"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of torch says that memory ran out, on a GPU or on the CPU."""
    return isinstance(error, torch.OutOfMemoryError) or any(words in str(error) for words in _CPU_WORDS)


def longest_row(tokens: int, vocabulary: int, number: int) -> TrainingRow:
    """A row of arbitrary tokens, all but the first of them trained; rows of different `number` share no beginning."""
    ids = [(number + place) % vocabulary for place in range(tokens)]
    return TrainingRow(ids, [0, *[1] * (tokens - 1)], [-1.0] * tokens, 1.0, number, f"rehearsal/{number}")

"""What a benchmark reports."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Result:
    """`value` in `unit`; `against` names the alternative; `ratio` says how many times better ours is (above 1: better)."""

    name: str
    value: float
    unit: str
    against: str
    ratio: float


def best_of_rounds(sides: list[Callable[[], float]], rounds: int = 3) -> list[float]:
    """The best rate of each side; sides take turns, so that a slow spell of the machine hits all of them."""
    best = [0.0] * len(sides)
    for _ in range(rounds):
        best = [max(known, side()) for known, side in zip(best, sides, strict=True)]
    return best


class CpuClock:
    """CPU-seconds of this process, all threads: steady on a busy machine, where wall time is not."""

    def __init__(self) -> None:
        self.seconds = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count what is spent inside the block."""
        start = time.process_time()
        try:
            yield
        finally:
            self.seconds += time.process_time() - start

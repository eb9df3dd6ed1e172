"""What a benchmark reports."""

from __future__ import annotations

import statistics
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


def median_of_rounds(sides: list[Callable[[], float]], rounds: int = 3) -> list[float]:
    """The median rate of each side; sides take turns, so that a slow spell of the machine hits all of them."""
    measured = [[side() for side in sides] for _ in range(rounds)]
    return [statistics.median(rates) for rates in zip(*measured, strict=True)]


def compare(ours: Callable[[], float], theirs: Callable[[], float], rounds: int = 5) -> tuple[float, float]:
    """Our median rate, and the median over the rounds of ours over theirs.

    A ratio is that of two runs one right after the other, and who goes first alternates: the speed of a busy machine changes
    within a round as little as can be, and its changes favour nobody.
    """
    rates, ratios = [], []
    for round_number in range(rounds):
        sides = [ours, theirs] if round_number % 2 == 0 else [theirs, ours]
        found = {side: side() for side in sides}
        rates.append(found[ours])
        ratios.append(found[ours] / found[theirs])
    return statistics.median(rates), statistics.median(ratios)


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

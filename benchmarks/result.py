"""What a benchmark reports."""

from __future__ import annotations

import time
from collections.abc import Iterator
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

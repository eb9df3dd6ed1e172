"""The one aggregation of attempts, shared with evaluations on a laptop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def summarise_attempts(
    attempts: Sequence[Mapping[str, Any]], *, n_runs: int, pass_threshold: float
) -> dict[str, Any]:
    """Counts, pass rate, reward statistics and pass@k of finished attempts."""
    from osmosis_ai.eval.results import summarise

    return summarise(attempts, n_runs=n_runs, pass_threshold=pass_threshold)

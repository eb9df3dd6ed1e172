"""Charts of long runs stay small and keep every spike."""

from __future__ import annotations

import random

import pytest

from osmosis_platform.runs.decimate import decimate


def test_short_series_stay_whole() -> None:
    assert decimate([3.0, 1.0, 2.0], 4) == [0, 1, 2]


@pytest.mark.parametrize("count", [101, 1000, 9973])
@pytest.mark.parametrize("limit", [4, 50, 100])
def test_extremes_and_ends_stay(count: int, limit: int) -> None:
    values = [random.Random(count).gauss(0, 1) for _ in range(count)]
    kept = decimate(values, limit)
    assert len(kept) <= limit
    assert kept == sorted(set(kept))
    assert (kept[0], kept[-1]) == (0, count - 1)
    chosen = [values[index] for index in kept]
    assert (min(chosen), max(chosen)) == (min(values), max(values))


def test_a_single_spike_in_a_million_points_stays() -> None:
    values = [0.0] * 1_000_000
    values[654_321] = 1.0
    kept = decimate(values, 2000)
    assert 654_321 in kept
    assert len(kept) <= 2000


def test_a_limit_that_is_too_small() -> None:
    with pytest.raises(ValueError, match="at least 4"):
        decimate([1.0], 3)

"""The curves of a run, thinned out for charts without reading every point.

A long range is drawn from summaries of its blocks (`blocks.py`), so that every extreme stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from osmosis_platform.runs import blocks
from osmosis_platform.runs.blocks import Point
from osmosis_platform.runs.decimate import decimate
from osmosis_platform.runs.models import RunMetric

MAX_POINTS = 2000
# A range of at most so many points is read as it is.
RAW = 16_000
# So many values before a range decide the moving average at its start: the strongest smoothing, 0.99, keeps 0.00004 of what was before.
LEAD = 1000
_LAST = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Series:
    """A curve: `points` are `(step, value, timestamp in ms)` by step, thinned out where there are more than were asked for.

    Then `means` are `(step, mean, number of values)` of the parts between, by step, for lines that are smoothed; else it is empty.
    `total` is how many points the range has. `lead` are the values just before it, at most `LEAD`, in the order of their steps, so that
    a moving average does not start anew with the range.
    """

    points: list[Point]
    means: list[tuple[float, float, int]]
    total: int
    lead: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Summary:
    """A whole metric in numbers."""

    key: str
    count: int
    total: float
    first: float
    latest: float
    low: float
    high: float


def keys(session: Session, run_id: str) -> list[str]:
    """The metrics of a run, by name; a look into the index for each."""
    found: list[str] = []
    query = select(func.min(RunMetric.key)).where(RunMetric.run_id == run_id)
    key = session.scalar(query)
    while key is not None:
        found.append(key)
        key = session.scalar(query.where(RunMetric.key > key))
    return found


def summaries(session: Session, run_id: str) -> list[Summary]:
    """Every metric of a run in numbers, by name."""
    known = blocks.totals(session, run_id)
    return [_summary(session, run_id, key, known.get(key)) for key in keys(session, run_id)]


def _summary(session: Session, run_id: str, key: str, numbers: tuple[Any, ...] | None) -> Summary:
    of_key = select(RunMetric.value).where(RunMetric.run_id == run_id, RunMetric.key == key)
    first = session.scalars(of_key.order_by(RunMetric.step).limit(1)).one()
    latest = session.scalars(of_key.order_by(RunMetric.step.desc()).limit(1)).one()
    if numbers is None:
        value = RunMetric.value
        columns = func.count(), func.sum(value), func.min(value), func.max(value)
        numbers = tuple(session.execute(of_key.with_only_columns(*columns)).one())
    return Summary(key, numbers[0], numbers[1], first, latest, numbers[2], numbers[3])


def series(
    session: Session, run_id: str, key: str, *, limit: int = MAX_POINTS, first: int = 0, last: int = _LAST
) -> Series:
    """A metric over the steps `first` to `last`, with at most `limit` points. All its extremes are among them."""
    curve = blocks.Curve(run_id, key, first, last)
    lead = _lead(session, run_id, key, first)
    # Two extremes of each part are as many points as may be.
    level = blocks.level_for(session, curve, RAW, max(1, limit // 2 - 2))
    if level is None:
        return _thinned(blocks.points(session, curve), limit, lead)
    pieces = blocks.pieces(session, curve, level)
    # The first and the last point of the range belong to the line, wherever the extremes are.
    found = {point for piece in pieces for point in (piece.low, piece.high)}
    candidates = sorted(found.union(blocks.ends(session, curve)))
    kept = decimate([value for _, value, _ in candidates], limit)
    latest = candidates[-1][0]
    means = _joined([(min(piece.middle, latest), piece.total, piece.number) for piece in pieces], limit // 2)
    total = sum(piece.number for piece in pieces)
    return Series([candidates[index] for index in kept], means, total, lead)


def _thinned(points: Sequence[Point], limit: int, lead: list[float]) -> Series:
    kept = decimate([value for _, value, _ in points], limit)
    sums = [(float(step), value, 1) for step, value, _ in points] if len(kept) < len(points) else []
    return Series([points[index] for index in kept], _joined(sums, limit // 2), len(points), lead)


def _lead(session: Session, run_id: str, key: str, first: int) -> list[float]:
    if first <= 0:
        return []
    query = select(RunMetric.value).where(
        RunMetric.run_id == run_id, RunMetric.key == key, RunMetric.step < first
    )
    return list(session.scalars(query.order_by(RunMetric.step.desc()).limit(LEAD)))[::-1]


def _joined(sums: Sequence[tuple[float, float, int]], parts: int) -> list[tuple[float, float, int]]:
    """`(step, sum, number)` in order, joined to at most `parts` `(middle step, mean, number)`."""
    size = -(-len(sums) // parts) if sums else 1
    found = []
    for start in range(0, len(sums), size):
        part = sums[start : start + size]
        number = sum(count for _, _, count in part)
        found.append((part[len(part) // 2][0], sum(value for _, value, _ in part) / number, number))
    return found

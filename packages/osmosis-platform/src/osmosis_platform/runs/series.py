"""The curves of a run, thinned out for charts without reading every point.

Beside the points there is a summary of each block of `BLOCK` steps: how many values, their sum, the least and the greatest with
their steps. A long range is drawn from the summaries, so that a million points cost as much as some thousands, and every extreme
stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, Select, func, select
from sqlalchemy.orm import Session

from osmosis_platform.db.base import WholeNumber
from osmosis_platform.runs.decimate import decimate
from osmosis_platform.runs.models import RunMetric, RunMetricBlock
from osmosis_platform.runs.upsert import insert_or_replace

BLOCK = 64
MAX_POINTS = 2000
# A range of at most so many points is read as it is.
RAW = 16_000
_CHUNK = 500
# So many values before a range decide the moving average at its start: the strongest smoothing, 0.99, keeps 0.00004 of what was before.
LEAD = 1000
_LAST = 2**31 - 1

Point = tuple[int, float, int]


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


def refresh_blocks(session: Session, run_id: str, changed: Iterable[tuple[str, int]]) -> None:
    """Sum up anew the blocks in which `(key, step)` pairs changed. Values are summed up as they are stored now."""
    blocks: dict[int, set[str]] = {}
    for key, step in changed:
        blocks.setdefault(step // BLOCK, set()).add(key)
    rows = []
    for block, keys in blocks.items():
        found: dict[str, list[tuple[int, float]]] = {}
        query = select(RunMetric.key, RunMetric.step, RunMetric.value).where(
            RunMetric.run_id == run_id,
            RunMetric.key.in_(keys),
            RunMetric.step.between(block * BLOCK, (block + 1) * BLOCK - 1),
        )
        for key, step, value in session.execute(query):
            found.setdefault(key, []).append((step, value))
        rows += [_block(run_id, key, block, values) for key, values in found.items()]
    insert_or_replace(
        session, RunMetricBlock, rows, replace=("count", "total", "low", "low_step", "high", "high_step")
    )


def _block(run_id: str, key: str, block: int, values: Sequence[tuple[int, float]]) -> dict[str, Any]:
    low, high = min(values, key=_value), max(values, key=_value)
    return {
        "run_id": run_id, "key": key, "block": block, "count": len(values), "total": sum(value for _, value in values),
        "low": low[1], "low_step": low[0], "high": high[1], "high_step": high[0],
    }  # fmt: skip


def _value(point: tuple[int, float]) -> float:
    return point[1]


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
    blocks = RunMetricBlock
    numbers = _counts(), func.sum(blocks.total), func.min(blocks.low), func.max(blocks.high)
    query = select(blocks.key, *numbers).where(blocks.run_id == run_id).group_by(blocks.key)
    known = {key: tuple(rest) for key, *rest in session.execute(query)}
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
    total = _count(session, run_id, key, first, last)
    if total is not None and total > RAW:
        return _from_blocks(session, run_id, key, limit, first, last, total)
    found = list(_raw(session, run_id, key, first, last))
    kept = decimate([value for _, value in found], limit)
    means = [] if len(kept) == len(found) else _means(found, limit // 2)
    points = _timed(session, run_id, key, [found[index] for index in kept])
    return Series(points, means, len(found), _lead(session, run_id, key, first))


def _counts() -> ColumnElement[int]:
    # Postgres adds whole numbers up to decimals.
    return func.sum(RunMetricBlock.count).cast(WholeNumber)


def _lead(session: Session, run_id: str, key: str, first: int) -> list[float]:
    if first <= 0:
        return []
    query = select(RunMetric.value).where(
        RunMetric.run_id == run_id, RunMetric.key == key, RunMetric.step < first
    )
    return list(session.scalars(query.order_by(RunMetric.step.desc()).limit(LEAD)))[::-1]


def _raw(session: Session, run_id: str, key: str, first: int, last: int) -> Iterable[tuple[int, float]]:
    query = select(RunMetric.step, RunMetric.value).where(
        RunMetric.run_id == run_id, RunMetric.key == key, RunMetric.step.between(first, last)
    )
    return ((step, value) for step, value in session.execute(query.order_by(RunMetric.step)))


def _count(session: Session, run_id: str, key: str, first: int, last: int) -> int | None:
    """About how many points a range has: those of every block that it touches."""
    return session.scalar(
        select(_counts()).where(
            RunMetricBlock.run_id == run_id,
            RunMetricBlock.key == key,
            RunMetricBlock.block.between(first // BLOCK, last // BLOCK),
        )
    )


def _from_blocks(
    session: Session, run_id: str, key: str, limit: int, first: int, last: int, total: int
) -> Series:
    # Whole blocks only; what the range has of the blocks at its ends is read as it is.
    start, end = -(-first // BLOCK), (last + 1) // BLOCK - 1
    # Two extremes of each part are as many points as may be.
    size = -(-(total // BLOCK + 1) // max(1, limit // 2 - 2))
    # Past the object mapper: thousands of rows, which nobody changes.
    summed = session.connection().execute(_joined_blocks(run_id, key, start, end, size)).all()
    head = list(_raw(session, run_id, key, first, start * BLOCK - 1)) if first < start * BLOCK else []
    tail = list(_raw(session, run_id, key, (end + 1) * BLOCK, last)) if (end + 1) * BLOCK <= last else []
    candidates = [*head]
    candidates += [(row[4], row[3]) for row in summed]
    candidates += [(row[6], row[5]) for row in summed]
    candidates += tail
    # The first and the last point of the range belong to the line, wherever the extremes are.
    for point in _ends(session, run_id, key, first, last):
        candidates.append(point)
    candidates = sorted(dict(candidates).items())
    kept = decimate([value for _, value in candidates], limit)
    latest = candidates[-1][0]
    middle = 0.5 * BLOCK * size
    means = _joined(
        [(min(row[0] * BLOCK * size + middle, latest), row[2], row[1]) for row in summed], limit // 2
    )
    points = _timed(session, run_id, key, [candidates[index] for index in kept])
    # The means start with the first whole block.
    return Series(points, means, total, _lead(session, run_id, key, start * BLOCK))


def _joined_blocks(run_id: str, key: str, start: int, end: int, size: int) -> Select[Any]:
    """The blocks `start` to `end`, each `size` of them joined to one: number, count, total, low, low_step, high, high_step."""
    blocks, part = RunMetricBlock, RunMetricBlock.block // size
    sums = select(
        part.label("part"),
        _counts().label("count"),
        func.sum(blocks.total).label("total"),
        func.min(blocks.low).label("low"),
        func.max(blocks.high).label("high"),
    )
    of_range = blocks.run_id == run_id, blocks.key == key, blocks.block.between(start, end)
    joined = sums.where(*of_range).group_by(part).cte("joined")
    first = joined.c.part * size
    inside = (
        blocks.run_id == run_id,
        blocks.key == key,
        blocks.block.between(first, first + size - 1),
        # Of the parts at the ends; the sum keeps the database from searching the index by this.
        (blocks.block + 0).between(start, end),
    )
    low_step = select(func.min(blocks.low_step)).where(*inside, blocks.low == joined.c.low)
    high_step = select(func.min(blocks.high_step)).where(*inside, blocks.high == joined.c.high)
    found = joined.c
    return select(
        found.part, found.count, found.total,
        found.low, low_step.scalar_subquery(), found.high, high_step.scalar_subquery(),
    ).order_by(found.part)  # fmt: skip


def _ends(session: Session, run_id: str, key: str, first: int, last: int) -> list[tuple[int, float]]:
    query = select(RunMetric.step, RunMetric.value).where(
        RunMetric.run_id == run_id, RunMetric.key == key, RunMetric.step.between(first, last)
    )
    orders = (RunMetric.step, RunMetric.step.desc())
    return [(row[0], row[1]) for order in orders for row in session.execute(query.order_by(order).limit(1))]


def _means(points: Sequence[tuple[int, float]], parts: int) -> list[tuple[float, float, int]]:
    return _joined([(float(step), value, 1) for step, value in points], parts)


def _joined(sums: Sequence[tuple[float, float, int]], parts: int) -> list[tuple[float, float, int]]:
    """`(step, sum, number)` in order, joined to at most `parts` `(middle step, mean, number)`."""
    size = -(-len(sums) // parts) if sums else 1
    found = []
    for start in range(0, len(sums), size):
        part = sums[start : start + size]
        number = sum(count for _, _, count in part)
        found.append((part[len(part) // 2][0], sum(value for _, value, _ in part) / number, number))
    return found


def _timed(session: Session, run_id: str, key: str, points: Sequence[tuple[int, float]]) -> list[Point]:
    """The points with their timestamps."""
    at: dict[int, int] = {}
    steps = [step for step, _ in points]
    chosen = RunMetric.run_id == run_id, RunMetric.key == key
    query = select(RunMetric.step, RunMetric.timestamp).where(*chosen)
    dense = bool(steps) and steps[-1] - steps[0] < 2 * len(steps)
    for start in range(0, len(steps), len(steps) if dense else _CHUNK):
        part = steps[start : start + _CHUNK]
        wanted = RunMetric.step.between(steps[0], steps[-1]) if dense else RunMetric.step.in_(part)
        found = session.connection().execute(query.where(wanted))
        at |= {step: int(moment.timestamp() * 1000) for step, moment in found}
    return [(step, value, at[step]) for step, value in points]

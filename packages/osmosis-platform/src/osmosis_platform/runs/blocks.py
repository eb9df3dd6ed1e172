"""Summaries of metrics, made as points are written, so that a million points are drawn at the cost of some thousands.

A block of level L holds `BLOCK * FAN**L` consecutive steps: how many values, their sum, the least and the greatest with their steps and
times. Those of each level are made from the level below. Any range is some whole blocks, and smaller ones or points at its ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Select, func, literal, select
from sqlalchemy.orm import Session

from osmosis_platform.db.base import WholeNumber
from osmosis_platform.db.types import unix_ms
from osmosis_platform.runs.models import RunMetric, RunMetricBlock
from osmosis_platform.runs.upsert import insert_or_replace

BLOCK = 64
FAN = 4
TOP = 6

Point = tuple[int, float, int]
_SUMMED = ("count", "total", "low", "low_step", "low_at", "high", "high_step", "high_at")


class Piece(NamedTuple):
    """Points of neighbouring steps in numbers. `low` and `high` are points `(step, value, timestamp in ms)`, `middle` is a step. `number` is how many they are."""

    middle: float
    number: int
    total: float
    low: Point
    high: Point


@dataclass(frozen=True, slots=True)
class Curve:
    """The steps `first` to `last` of a metric of a run."""

    run_id: str
    key: str
    first: int
    last: int

    def part(self, first: int, last: int) -> Curve:
        """Some of its steps."""
        return Curve(self.run_id, self.key, first, last)


def width(level: int) -> int:
    """How many steps a block of this level covers."""
    return BLOCK * int(FAN**level)


def refresh_blocks(session: Session, run_id: str, changed: Iterable[tuple[str, int]]) -> None:
    """Sum up anew the blocks in which `(key, step)` pairs changed. Values are summed up as they are stored now."""
    keys = _by_block((step // BLOCK, key) for key, step in changed)
    for level in range(TOP + 1):
        rows = [row for block in keys for row in _summed(session, run_id, level, block, keys[block])]
        insert_or_replace(session, RunMetricBlock, rows, replace=_SUMMED)
        keys = _by_block((block // FAN, key) for block, found in keys.items() for key in found)


def _by_block(pairs: Iterable[tuple[int, str]]) -> dict[int, set[str]]:
    found: dict[int, set[str]] = {}
    for block, key in pairs:
        found.setdefault(block, set()).add(key)
    return found


def _summed(
    session: Session, run_id: str, level: int, block: int, keys: Iterable[str]
) -> Iterator[dict[str, Any]]:
    """The rows of one block, one for each of these metrics."""
    below = _points_of(run_id, keys, block) if level == 0 else _blocks_of(run_id, keys, level - 1, block)
    # Past the object mapper: many rows, which nobody changes.
    found = session.connection().execute(below)
    for key, group in groupby(found, key=itemgetter(0)):
        parts = list(group)
        low, high = min(parts, key=itemgetter(3)), max(parts, key=itemgetter(6))
        count, total = sum(part[1] for part in parts), sum(part[2] for part in parts)
        values = (count, total, *low[3:6], *high[6:9])
        yield {
            "run_id": run_id,
            "key": key,
            "level": level,
            "block": block,
            **dict(zip(_SUMMED, values, strict=True)),
        }


def _points_of(run_id: str, keys: Iterable[str], block: int) -> Select[Any]:
    """The points of a block of the lowest level, as blocks of one step."""
    of = RunMetric
    point: list[Any] = [of.value, of.step, unix_ms(of.timestamp)]
    inside = of.step.between(block * BLOCK, (block + 1) * BLOCK - 1)
    query = select(of.key, literal(1), of.value, *point, *point)
    return query.where(of.run_id == run_id, of.key.in_(keys), inside).order_by(of.key, of.step)


def _blocks_of(run_id: str, keys: Iterable[str], level: int, block: int) -> Select[Any]:
    """The blocks of a level that are one block of the next."""
    of = RunMetricBlock
    inside = of.level == level, of.block.between(block * FAN, (block + 1) * FAN - 1)
    query = select(of.key, *(getattr(of, name) for name in _SUMMED))
    return query.where(of.run_id == run_id, of.key.in_(keys), *inside).order_by(of.key, of.block)


def level_for(session: Session, curve: Curve, points: int, pieces: int) -> int | None:
    """The finest level at which the curve has at most `pieces` blocks; None when it has at most `points` points, or no blocks."""
    of = RunMetricBlock
    for level in range(TOP, -1, -1):
        touched = of.block.between(curve.first // width(level), curve.last // width(level))
        found = select(func.count(), _number(of.count)).where(*_level(curve, level), touched)
        blocks, total = session.execute(found).one()
        if not total or total <= points:
            return None
        if blocks > pieces:
            return min(level + 1, TOP)
    return 0


def pieces(session: Session, curve: Curve, level: int) -> list[Piece]:
    """All of the curve by step: whole blocks of this level, smaller ones where it begins and ends, and then points."""
    if curve.first > curve.last:
        return []
    if level < 0:
        return [
            Piece(step, 1, value, (step, value, at), (step, value, at))
            for step, value, at in points(session, curve)
        ]
    steps = width(level)
    start, end = -(-curve.first // steps), (curve.last + 1) // steps
    if start >= end:
        return pieces(session, curve, level - 1)
    of = RunMetricBlock
    query = select(of.block, *(getattr(of, name) for name in _SUMMED))
    whole = query.where(*_level(curve, level), of.block.between(start, end - 1)).order_by(of.block)
    return [
        *pieces(session, curve.part(curve.first, start * steps - 1), level - 1),
        *(
            Piece((block + 0.5) * steps, count, total, (low_step, low, low_at), (high_step, high, high_at))
            for block, count, total, low, low_step, low_at, high, high_step, high_at in session.connection().execute(
                whole
            )
        ),
        *pieces(session, curve.part(end * steps, curve.last), level - 1),
    ]


def points(session: Session, curve: Curve) -> list[Point]:
    """All points of the curve, by step."""
    query = _points(curve).order_by(RunMetric.step)
    return [(step, value, at) for step, value, at in session.connection().execute(query)]


def ends(session: Session, curve: Curve) -> list[Point]:
    """The first and the last point of the curve."""
    orders = RunMetric.step, RunMetric.step.desc()
    found = [session.execute(_points(curve).order_by(order).limit(1)).first() for order in orders]
    return [(row[0], row[1], row[2]) for row in found if row is not None]


def totals(session: Session, run_id: str) -> dict[str, tuple[int, float, float, float]]:
    """Number, sum, least and greatest value of every metric that has blocks."""
    of = RunMetricBlock
    numbers = _number(of.count), func.sum(of.total), func.min(of.low), func.max(of.high)
    query = select(of.key, *numbers).where(of.run_id == run_id, of.level == TOP).group_by(of.key)
    return {key: (count, total, low, high) for key, count, total, low, high in session.execute(query)}


def _points(curve: Curve) -> Select[Any]:
    of = RunMetric
    point: list[Any] = [of.step, of.value, unix_ms(of.timestamp)]
    return select(*point).where(
        of.run_id == curve.run_id, of.key == curve.key, of.step.between(curve.first, curve.last)
    )


def _level(curve: Curve, level: int) -> tuple[ColumnElement[bool], ...]:
    of = RunMetricBlock
    return of.run_id == curve.run_id, of.key == curve.key, of.level == level


def _number(column: Any) -> ColumnElement[int]:
    # Postgres adds whole numbers up to decimals.
    return func.sum(column).cast(WholeNumber)

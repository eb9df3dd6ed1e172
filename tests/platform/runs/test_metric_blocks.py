"""Blocks of metrics say what their points say, on every level, however the points came and whoever made the blocks."""

from __future__ import annotations

import importlib
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import inspect, select
from sqlalchemy.orm import Session

from osmosis_platform.context import Platform
from osmosis_platform.runs import blocks, series
from osmosis_platform.runs.models import RunMetric, RunMetricBlock
from osmosis_platform.runs.upsert import insert_or_replace

START = datetime(2026, 11, 1, 12, 0, 0, 250_000, tzinfo=UTC)
KEYS = ("reward", "loss")


@pytest.fixture
def run_id(platform: Platform, add_run: Any) -> str:
    """A run whose points came in three pieces, some of them twice, with steps that are far apart."""
    dice = random.Random(3)
    steps = [*range(700), 5000, *range(70_000, 70_300), 2_000_000]
    points = {(key, step): dice.choice([0.0, 0.25, dice.random()]) for key in KEYS for step in steps}
    with platform.database.write() as session:
        run = add_run(session)
        _write(session, run.id, dict.fromkeys(list(points)[:500], 9.0))
        order = dice.sample(list(points), len(points))
        for start in range(0, len(order), 400):
            _write(session, run.id, {place: points[place] for place in order[start : start + 400]})
        return run.id


def _write(session: Session, run_id: str, points: dict[tuple[str, int], float]) -> None:
    rows = [
        {
            "run_id": run_id,
            "key": key,
            "step": step,
            "value": value,
            "timestamp": START + timedelta(seconds=step),
        }
        for (key, step), value in points.items()
    ]
    insert_or_replace(session, RunMetric, rows, replace=("value", "timestamp"))
    blocks.refresh_blocks(session, run_id, points)


def _expected(session: Session, run_id: str) -> Iterator[tuple[Any, ...]]:
    found: dict[tuple[str, int, int], list[RunMetric]] = {}
    for point in session.scalars(
        select(RunMetric).where(RunMetric.run_id == run_id).order_by(RunMetric.step)
    ):
        for level in range(blocks.TOP + 1):
            found.setdefault((point.key, level, point.step // blocks.width(level)), []).append(point)
    for (key, level, block), points in found.items():
        low, high = min(points, key=lambda p: p.value), max(points, key=lambda p: p.value)
        ends = [(p.value, p.step, round(p.timestamp.timestamp() * 1000)) for p in (low, high)]
        yield key, level, block, len(points), pytest.approx(sum(p.value for p in points)), *ends[0], *ends[1]


def _stored(session: Session) -> list[tuple[Any, ...]]:
    columns = [column for column in inspect(RunMetricBlock).columns if column.name != "run_id"]
    return [tuple(row) for row in session.execute(select(*columns))]


def test_blocks_are_those_of_the_stored_points(platform: Platform, run_id: str) -> None:
    with platform.database.read() as session:
        assert sorted(_stored(session)) == sorted(_expected(session, run_id), key=lambda row: row[:3])


def test_an_older_database_gets_them_from_its_points(platform: Platform, run_id: str) -> None:
    migration = importlib.import_module("osmosis_platform.db.migrations.versions.0010_block_levels")
    with platform.database.engine.begin() as connection:
        with Operations.context(MigrationContext.configure(connection)):
            migration.upgrade()
    with platform.database.read() as session:
        assert sorted(_stored(session)) == sorted(_expected(session, run_id), key=lambda row: row[:3])


def test_pieces_hold_every_point_of_a_range_once(platform: Platform, run_id: str) -> None:
    for first, last in [(0, 3_000_000), (3, 70_111), (640, 640), (701, 4999), (60, 70)]:
        curve = blocks.Curve(run_id, "reward", first, last)
        with platform.database.read() as session:
            points = blocks.points(session, curve)
            drawn = series.series(session, run_id, "reward", first=first, last=last)
            for level in (0, 2, blocks.TOP):
                _check_pieces(blocks.pieces(session, curve, level), points)
        assert (drawn.points, drawn.total) == (points, len(points))


def _check_pieces(found: list[blocks.Piece], points: list[blocks.Point]) -> None:
    assert sum(piece.number for piece in found) == len(points)
    assert sum(piece.total for piece in found) == pytest.approx(sum(value for _, value, _ in points))
    assert {point for piece in found for point in (piece.low, piece.high)} <= set(points)
    assert [piece.middle for piece in found] == sorted(piece.middle for piece in found)
    if points:
        values = [value for _, value, _ in points]
        extremes = min(piece.low[1] for piece in found), max(piece.high[1] for piece in found)
        assert extremes == (min(values), max(values))

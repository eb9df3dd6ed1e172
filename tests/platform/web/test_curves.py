"""Curves are thinned out from summaries, and lose no extreme; the summaries are those of the stored values."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import event, insert

from osmosis_platform.context import Platform
from osmosis_platform.db.types import utc_now
from osmosis_platform.runs import blocks, charts, series
from osmosis_platform.runs.events import apply_events
from osmosis_platform.runs.models import Run, RunMetric
from osmosis_platform.runs.wire import Events

KEY = "rollout/raw_reward"
COUNT = 40_000


@pytest.fixture
def run_id(platform: Platform, add_run: Any) -> str:
    with platform.database.write() as session:
        run = add_run(session)
        return run.id


@pytest.fixture
def fill(platform: Platform, run_id: str) -> Callable[[list[float]], None]:
    def fill(values: list[float]) -> None:
        now = utc_now()
        with platform.database.write() as session:
            rows = [
                {"run_id": run_id, "key": KEY, "step": step, "value": value, "timestamp": now}
                for step, value in enumerate(values)
            ]
            session.execute(insert(RunMetric), rows)
            starts = range(0, len(values), blocks.BLOCK)
            blocks.refresh_blocks(session, run_id, [(KEY, step) for step in starts])

    return fill


def noise() -> list[float]:
    dice = random.Random(5)
    values = [math.sin(step / 3000) + dice.gauss(0, 0.1) for step in range(COUNT)]
    values[12_345], values[31_111] = 9.0, -7.0
    return values


def test_blocks_are_joined_where_few_points_are_asked_for(platform: Platform, run_id: str, fill: Any) -> None:
    """Also for a range that begins and ends inside of blocks."""
    values = noise()
    fill(values)
    with platform.database.read() as session:
        few = series.series(session, run_id, KEY, limit=100, first=100, last=COUNT - 100)
    assert len(few.points) <= 100
    assert {(12_345, 9.0), (31_111, -7.0)} <= {(step, value) for step, value, _ in few.points}
    assert all(value == values[step] for step, value, _ in few.points)
    assert (few.points[0][0], few.points[-1][0]) == (100, COUNT - 100)


def test_a_long_curve_keeps_its_extremes_and_reads_few_rows(
    platform: Platform, run_id: str, fill: Any
) -> None:
    values = noise()
    fill(values)
    statements: list[str] = []
    event.listen(
        platform.database.engine, "before_cursor_execute", lambda *given: statements.append(given[2])
    )
    with platform.database.read() as session:
        found = series.series(session, run_id, KEY)
        (summary,) = series.summaries(session, run_id)
    steps = [step for step, _, _ in found.points]
    assert len(steps) <= series.MAX_POINTS
    assert steps == sorted(set(steps))
    assert (steps[0], steps[-1], found.total) == (0, COUNT - 1, COUNT)
    assert all(value == values[step] for step, value, _ in found.points)
    assert {12_345, 31_111} <= set(steps)
    assert sum(count for _, _, count in found.means) == COUNT
    assert sum(mean * count for _, mean, count in found.means) == pytest.approx(math.fsum(values))
    assert (summary.count, summary.first, summary.latest) == (COUNT, values[0], values[-1])
    assert (summary.low, summary.high) == (-7.0, 9.0)
    assert summary.total == pytest.approx(math.fsum(values))
    unlimited = [
        s
        for s in statements
        if "FROM run_metrics " in s and "IN (" not in s and "LIMIT" not in s and "min(" not in s
    ]
    assert unlimited == [], "points were read as a whole"


@pytest.mark.parametrize(("first", "last"), [(100, 30_000), (12_300, 12_400), (5000, 21_500), (63, 39_999)])
def test_a_part_of_it_is_finer_and_exact(
    platform: Platform, run_id: str, fill: Any, first: int, last: int
) -> None:
    values = noise()
    fill(values)
    with platform.database.read() as session:
        found = series.series(session, run_id, KEY, first=first, last=last)
    part = values[first : last + 1]
    chosen = [value for _, value, _ in found.points]
    assert len(chosen) <= series.MAX_POINTS
    assert (min(chosen), max(chosen)) == (min(part), max(part))
    assert (found.points[0][0], found.points[-1][0]) == (first, min(last, COUNT - 1))
    if len(part) <= series.MAX_POINTS:
        assert [step for step, _, _ in found.points] == list(range(first, last + 1))
    # The values before it lead without a gap to the first mean or point.
    assert found.lead == values[max(0, first - series.LEAD) : first]
    if found.means:
        assert sum(count for _, _, count in found.means) == len(part) == found.total
        assert sum(mean * count for _, mean, count in found.means) == pytest.approx(math.fsum(part))


def test_events_keep_the_summaries_true_also_when_a_step_is_sent_again(
    platform: Platform, run_id: str
) -> None:
    def send(step: int, value: float) -> None:
        body = {
            "type": "metrics",
            "step": step,
            "timestamp": utc_now().isoformat(),
            "values": {KEY: value, "b": 1.0},
        }
        with platform.database.write() as session:
            apply_events(session, platform.blobs, session.get_one(Run, run_id), Events(events=[body]).events)  # type: ignore[list-item]

    for step, value in [(0, 1.0), (1, 50.0), (130, -3.0), (1, 2.0), (130, 4.0)]:
        send(step, value)
    with platform.database.read() as session:
        found = {summary.key: summary for summary in series.summaries(session, run_id)}
        assert found[KEY] == series.Summary(KEY, 3, 7.0, 1.0, 4.0, 1.0, 4.0)
        assert found["b"].count == 3
        drawn = charts.charts(session, session.get_one(Run, run_id), ["b"], None, None)["series"]
    assert [(one["key"], one["group"], one["main"], one["points"] is None) for one in drawn] == [
        (KEY, "Rollout", True, True), ("b", "Other", False, False),
    ]  # fmt: skip


def test_every_point_is_in_the_file(browser: Any, run_id: str, fill: Any) -> None:
    fill([step / 3 for step in range(2500)])
    answer = browser("max").client.get(f"/acme/training/{run_id}/metrics.csv")
    assert answer.headers["content-type"].startswith("text/csv")
    assert "attachment" in answer.headers["content-disposition"]
    head, *lines = answer.text.splitlines()
    assert head == "metric,step,timestamp,value"
    assert len(lines) == 2500
    name, step, _, value = lines[2400].split(",")
    assert (name, step, float(value)) == (KEY, "2400", 2400 / 3)

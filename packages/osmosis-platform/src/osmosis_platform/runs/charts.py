"""Charts of a training run: which there are, their points, and the same as a file."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from osmosis_platform.context import Platform
from osmosis_platform.runs import series, service
from osmosis_platform.runs.models import TERMINAL, Run, RunMetric

# What people look at first; the other metrics are folded away below these, by group.
MAIN_CHARTS = (
    "rollout/raw_reward",
    "eval/validation/reward",
    "train/entropy_loss",
    "rollout/response_lengths",
    "rollout/total_lengths",
    "rollout/truncated_ratio",
)
MAX_KEYS = 100
_ROWS = 2000


def charts(
    session: Session, run: Run, keys: Sequence[str], first: int | None, last: int | None
) -> dict[str, Any]:
    """Every metric of a run; those in `keys` (without any, the main ones) with their points from step `first` to `last`.

    `points` are `[step, value, timestamp in ms]`, or null where they were not asked for; `means` are `[step, mean, number of values]` where
    points were left out, and `lead` the values before `first`, see `series.Series`.
    """
    known = sorted(series.keys(session, run.id), key=chart_order)
    wanted = set(keys or [key for key in known if key in MAIN_CHARTS] or known[: len(MAIN_CHARTS)])
    bounds = {"first": first or 0, **({} if last is None else {"last": last})}
    return {
        "series": [
            {
                "key": key,
                "title": service.title(key),
                "group": key.split("/", 1)[0].replace("_", " ").capitalize() if "/" in key else "Other",
                "main": key in MAIN_CHARTS,
                **(_points(series.series(session, run.id, key, **bounds)) if key in wanted else _NO_POINTS),
            }
            for key in known
        ],
        "final": run.status in TERMINAL,
    }


_NO_POINTS: dict[str, Any] = {"points": None, "means": [], "lead": [], "total": None}


def _points(found: series.Series) -> dict[str, Any]:
    return {"points": found.points, "means": found.means, "lead": found.lead, "total": found.total}


def chart_order(key: str) -> tuple[int, str]:
    """Main charts first, in their order, then by name."""
    return (MAIN_CHARTS.index(key) if key in MAIN_CHARTS else len(MAIN_CHARTS), key)


def csv_lines(platform: Platform, run_id: str) -> Iterator[str]:
    """Every point of every metric as `metric,step,timestamp,value`, read in pieces."""
    columns = RunMetric.key, RunMetric.step, RunMetric.timestamp, RunMetric.value
    query = select(*columns).where(RunMetric.run_id == run_id).order_by(RunMetric.key, RunMetric.step)
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(("metric", "step", "timestamp", "value"))
    with platform.database.read() as session:
        for rows in session.execute(query.execution_options(yield_per=_ROWS)).partitions():
            writer.writerows(
                (key, step, moment.isoformat(), repr(value)) for key, step, moment, value in rows
            )
            yield text.getvalue()
            text.seek(0)
            text.truncate()
    yield text.getvalue()

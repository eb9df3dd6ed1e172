"""Evaluations compared row by row: what changed, and whether it is more than chance.

A row of a run is the mean over its attempts. Everything is added up in the database: no run is read as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from sqlalchemy import ColumnElement, Float, Select, Subquery, and_, case, func, or_, select
from sqlalchemy.orm import Session

from osmosis_ai.eval.paired import (
    EXACT_DIFFERENCES,
    PairedTest,
    holm,
    paired_interval,
    sign_flip_normal,
    sign_flip_test,
)
from osmosis_platform.datasets.models import Dataset
from osmosis_platform.runs.models import Run, RunAttempt
from osmosis_platform.storage.store import BlobStore

Measure = Literal["reward", "passed"]
Show = Literal["changed", "better", "worse", "all"]

# Means of the same rewards may differ in the last digits, by the order in which they were added.
_SAME = 1e-9
SIGNIFICANT = 0.05


@dataclass(frozen=True, slots=True)
class Pair:
    """A run against the baseline, over the rows that both have. `difference` is the mean of run less baseline."""

    run_id: str
    rows: int
    better: int
    worse: int
    difference: float | None
    low: float | None
    high: float | None
    p_value: float | None
    adjusted_p_value: float | None
    method: str | None
    verdict: Literal["better", "worse", "unclear", "nothing"]


def same_rows(session: Session, runs: Sequence[Run]) -> bool:
    """Whether a row's number means the same in all runs: they used the same file."""
    ids = {run.dataset_id for run in runs}
    if len(ids) == 1:
        return None not in ids
    files = session.scalars(select(Dataset.source_sha256).where(Dataset.id.in_(ids - {None})).distinct())
    found = list(files)
    return None not in ids and len(found) == 1 and found[0] is not None


def rows_file(session: Session, blobs: BlobStore, runs: Sequence[Run]) -> Path | None:
    """The file with the rows of runs that used the same one; None once it is no longer stored."""
    ids = [run.dataset_id for run in runs]
    for sha256 in session.scalars(
        select(Dataset.rows_sha256).where(Dataset.id.in_(ids), Dataset.rows_sha256.is_not(None))
    ):
        if sha256 is not None and blobs.exists(sha256):
            return blobs.path(sha256)
    return None


def pairs(session: Session, runs: Sequence[Run], measure: Measure) -> list[Pair]:
    """Each other run against the first one, the baseline; p-values are also adjusted for how many there are (Holm)."""
    found = [_pair(session, runs[0], other, measure) for other in runs[1:]]
    tested = [index for index, pair in enumerate(found) if pair.p_value is not None]
    adjusted = holm([found[index].p_value or 0.0 for index in tested])
    for index, value in zip(tested, adjusted, strict=True):
        pair = found[index]
        verdict = (
            pair.verdict if value >= SIGNIFICANT else ("better" if (pair.difference or 0) > 0 else "worse")
        )
        found[index] = Pair(**{**asdict(pair), "adjusted_p_value": value, "verdict": verdict})
    return found


def _pair(session: Session, baseline: Run, other: Run, measure: Measure) -> Pair:
    base, run = _by_row(baseline, measure), _by_row(other, measure)
    difference = run.c.value - base.c.value
    changed = _changed(base, run)
    of_rows = select().select_from(base.join(run, base.c.row_index == run.c.row_index))
    counted = func.coalesce(func.sum(case((changed, difference), else_=0.0)), 0.0)
    squares = func.coalesce(func.sum(case((changed, difference * difference), else_=0.0)), 0.0)
    better, worse = (
        func.sum(case((and_(changed, side), 1), else_=0)) for side in (difference > 0, difference < 0)
    )
    numbers = session.execute(of_rows.with_only_columns(func.count(), counted, squares, better, worse)).one()
    rows, total, total_squares, up, down = (
        numbers[0],
        float(numbers[1]),
        float(numbers[2]),
        numbers[3] or 0,
        numbers[4] or 0,
    )
    interval = paired_interval(rows, total, total_squares)
    test: PairedTest | None = None
    if rows and up + down <= EXACT_DIFFERENCES:
        test = sign_flip_test(list(session.scalars(of_rows.where(changed).with_only_columns(difference))))
    if rows and test is None:
        test = sign_flip_normal(total, total_squares)
    return Pair(
        other.id, rows, up, down,
        difference=total / rows if rows else None,
        low=interval[0] if interval else None,
        high=interval[1] if interval else None,
        p_value=test.p_value if test else None,
        adjusted_p_value=None,
        method=test.method if test else None,
        verdict="unclear" if rows else "nothing",
    )  # fmt: skip


def _by_row(run: Run, measure: Measure) -> Subquery:
    """`row_index` and `value`, the mean over the row's attempts that count."""
    counts: ColumnElement[bool] = RunAttempt.status != "skipped"
    value: Any = RunAttempt.reward
    if measure == "passed":
        threshold = run.config.get("evaluation", {}).get("pass_threshold", 1.0)
        value = case((RunAttempt.reward >= threshold, 1.0), else_=0.0)
    else:
        counts = and_(counts, RunAttempt.reward.is_not(None))
    mean = func.avg(value).cast(Float).label("value")
    query = select(RunAttempt.row_index.label("row_index"), mean)
    return query.where(RunAttempt.run_id == run.id, counts).group_by(RunAttempt.row_index).subquery()


def _changed(base: Subquery, run: Subquery) -> ColumnElement[bool]:
    size = func.abs(base.c.value) + func.abs(run.c.value)
    return func.abs(run.c.value - base.c.value) > _SAME * size


def rows(
    session: Session, runs: Sequence[Run], measure: Measure, show: Show, limit: int, offset: int
) -> tuple[list[dict[str, Any]], int]:
    """A page of the baseline's rows, those that changed most first, and how many `show` leaves.

    Each row has `values` in the order of the runs (None where a run has no such row) and `differences` of the others to the baseline.
    """
    base, *others = (_by_row(run, measure) for run in runs)
    joined: Any = base
    for run in others:
        joined = joined.outerjoin(run, base.c.row_index == run.c.row_index)
    differences = [case((_changed(base, run), run.c.value - base.c.value), else_=0.0) for run in others]
    distance = sum((func.abs(d) for d in differences[1:]), func.abs(differences[0]))
    wanted: dict[str, ColumnElement[bool] | None] = {
        "all": None,
        "changed": distance > 0,
        "better": or_(*(d > 0 for d in differences)),
        "worse": or_(*(d < 0 for d in differences)),
    }
    query: Select[Any] = select(base.c.row_index, base.c.value, *(run.c.value for run in others)).select_from(
        joined
    )
    condition = wanted[show]
    if condition is not None:
        query = query.where(condition)
    total = session.scalar(query.with_only_columns(func.count()))
    page = query.order_by(distance.desc(), base.c.row_index).limit(limit).offset(offset)
    return [_row(*row) for row in session.execute(page)], total or 0


def _row(row_index: int, base: float, *values: float | None) -> dict[str, Any]:
    return {
        "row_index": row_index,
        "values": [base, *values],
        "differences": [None if value is None else value - base for value in values],
    }

"""Which attempts of an evaluation a page lists, and in what order; all of it is in the address of the page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlencode

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from osmosis_platform.runs.models import Run, RunAttempt
from osmosis_platform.runs.pages import attempt_row

AttemptStatus = Literal["", "success", "failed", "skipped"]
AttemptReward = Literal["", "passed", "below", "none"]
AttemptSort = Literal["row", "best", "worst", "slowest", "tokens"]
# A selection offers at most so many kinds of errors, the most frequent ones.
ERRORS = 30


@dataclass(frozen=True, slots=True)
class AttemptFilter:
    """Empty means all. `below` and `passed` compare with the pass threshold; `error` is an error type, `q` part of an error's text."""

    status: AttemptStatus = ""
    reward: AttemptReward = ""
    error: str = ""
    q: str = ""
    row: int | None = None
    sort: AttemptSort = "row"

    @property
    def chosen(self) -> dict[str, str]:
        """What differs from a list of everything."""
        values = {
            "status": self.status,
            "reward": self.reward,
            "error": self.error,
            "q": self.q,
            "row": "" if self.row is None else str(self.row),
            "sort": "" if self.sort == "row" else self.sort,
        }
        return {key: value for key, value in values.items() if value}

    def query(self) -> str:
        """The filter as the beginning of an address's query: empty, or `status=failed&`."""
        return f"{urlencode(self.chosen)}&" if self.chosen else ""

    def conditions(self, run: Run) -> list[ColumnElement[bool]]:
        """The filter over `RunAttempt`."""
        threshold = run.config.get("evaluation", {}).get("pass_threshold", 1.0)
        rewards: dict[str, ColumnElement[bool]] = {
            "passed": RunAttempt.reward >= threshold,
            "below": RunAttempt.reward < threshold,
            "none": RunAttempt.reward.is_(None),
        }
        found = [RunAttempt.run_id == run.id]
        if self.status:
            found.append(RunAttempt.status == self.status)
        if self.reward:
            found.append(rewards[self.reward])
        if self.error:
            found.append(RunAttempt.error_type == self.error)
        if self.q:
            found.append(RunAttempt.error_message.icontains(self.q, autoescape=True))
        if self.row is not None:
            found.append(RunAttempt.row_index == self.row)
        return found

    def order(self) -> list[Any]:
        """The order; what has no value comes last."""
        by_row = [RunAttempt.row_index, RunAttempt.run_index]
        orders: dict[AttemptSort, list[Any]] = {
            "row": [],
            "best": [RunAttempt.reward.desc().nulls_last()],
            "worst": [RunAttempt.reward.nulls_last()],
            "slowest": [RunAttempt.duration_ms.desc().nulls_last()],
            "tokens": [RunAttempt.tokens.desc().nulls_last()],
        }
        return [*orders[self.sort], *by_row]


def attempts(
    session: Session, run: Run, chosen: AttemptFilter, limit: int, offset: int
) -> tuple[list[dict[str, Any]], int]:
    """A page of an evaluation's attempts, and how many the filter leaves."""
    mine = chosen.conditions(run)
    total = session.scalar(select(func.count()).select_from(RunAttempt).where(*mine)) or 0
    query = select(RunAttempt).where(*mine).order_by(*chosen.order()).limit(limit).offset(offset)
    return [attempt_row(a) for a in session.scalars(query)], total


def error_types(session: Session, run: Run) -> list[str]:
    """The kinds of errors of a run, for the filter to offer."""
    kind = RunAttempt.error_type
    query = select(kind).where(RunAttempt.run_id == run.id, kind.is_not(None)).group_by(kind)
    found = session.scalars(query.order_by(func.count().desc(), kind).limit(ERRORS))
    return [name for name in found if name is not None]

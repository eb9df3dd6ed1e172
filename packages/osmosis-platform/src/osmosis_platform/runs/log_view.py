"""The log of a run or dataset as its page shows it: the newest lines, older ones on request, new ones as they come."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select, text
from sqlalchemy.orm import Session

from osmosis_platform.http.logs import log_body
from osmosis_platform.runs.models import LogLine

SHOWN = 200
ADVICE = 10


def newest_lines(session: Session, owner_id: str, before: int | None = None) -> list[dict[str, Any]]:
    """The last lines, oldest first, each with its `sequence`; with `before`, the last of those in front of it."""
    query = select(LogLine).where(LogLine.owner_id == owner_id)
    if before is not None:
        query = query.where(LogLine.sequence < before)
    found = session.scalars(query.order_by(LogLine.sequence.desc()).limit(SHOWN))
    return [_line(line) for line in reversed(list(found))]


def lines_after(session: Session, owner_id: str, sequence: int) -> list[dict[str, Any]]:
    """The first lines behind `sequence`."""
    query = select(LogLine).where(LogLine.owner_id == owner_id, LogLine.sequence > sequence)
    return [_line(line) for line in session.scalars(query.order_by(LogLine.sequence).limit(SHOWN))]


def has_older(session: Session, owner_id: str, lines: list[dict[str, Any]]) -> bool:
    """Whether there are lines in front of these."""
    if not lines:
        return False
    older = select(LogLine.sequence).where(
        LogLine.owner_id == owner_id, LogLine.sequence < lines[0]["sequence"]
    )
    return session.scalar(older.limit(1)) is not None


def advice(session: Session, owner_id: str) -> list[dict[str, Any]]:
    """The last pieces of advice that a training gave, newest first: `timestamp`, `message`."""
    # The literal, so that the partial index is used.
    query = select(LogLine).where(LogLine.owner_id == owner_id, text("step = 'advice'"))
    found = session.scalars(query.order_by(LogLine.sequence.desc()).limit(ADVICE))
    return [{"timestamp": line.timestamp.isoformat(), "message": line.message} for line in found]


def _line(line: LogLine) -> dict[str, Any]:
    return {**log_body(line), "sequence": line.sequence}

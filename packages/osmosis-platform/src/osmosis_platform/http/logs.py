"""Pages of log lines, walked with a cursor in either direction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import Depends, Query
from sqlalchemy import select
from sqlalchemy.orm import Session

from osmosis_platform.errors import InvalidInput
from osmosis_platform.runs.models import LogLine

Direction = Literal["older", "newer"]
MAX_LOG_PAGE = 200


@dataclass(frozen=True, slots=True)
class LogWindow:
    """The page asked for: at most `limit` lines beyond `cursor` in `direction`."""

    limit: int
    direction: Direction
    cursor: str | None


def log_window(
    limit: Annotated[int, Query(ge=1, le=MAX_LOG_PAGE)] = 50,
    direction: Direction = "older",
    cursor: str | None = None,
) -> LogWindow:
    """The window asked for by the query."""
    return LogWindow(limit, direction, cursor)


LogQuery = Annotated[LogWindow, Depends(log_window)]


def logs_page(
    session: Session,
    owner_id: str,
    limit: int = 50,
    direction: Direction = "older",
    cursor: str | None = None,
) -> dict[str, Any]:
    """`{"logs": [...], "next_cursor"}`, oldest line first.

    Without cursor: the newest page when walking to `older` lines, the first page when walking to `newer` ones.
    `next_cursor` is null at the end of the walk. Raises InvalidInput for a cursor that is none of ours.
    """
    query = select(LogLine).where(LogLine.owner_id == owner_id)
    older = direction == "older"
    if cursor:
        edge = _edge(cursor)
        query = query.where(LogLine.sequence < edge if older else LogLine.sequence > edge)
    query = query.order_by(LogLine.sequence.desc() if older else LogLine.sequence.asc())
    found = list(session.scalars(query.limit(limit + 1)))
    more, lines = len(found) > limit, found[:limit]
    next_cursor = str(lines[-1].sequence) if more else None
    if older:
        lines.reverse()
    return {"logs": [log_body(line) for line in lines], "next_cursor": next_cursor}


def log_body(line: LogLine) -> dict[str, Any]:
    """One line on the wire."""
    return {
        "timestamp": line.timestamp.isoformat(),
        "level": line.level,
        "step": line.step,
        "message": line.message,
        "details": line.details,
    }


def _edge(cursor: str) -> int:
    if not cursor.isascii() or not cursor.isdigit() or len(cursor) > 18:
        raise InvalidInput("The log cursor is not valid. Start again without one.", field="cursor")
    return int(cursor)

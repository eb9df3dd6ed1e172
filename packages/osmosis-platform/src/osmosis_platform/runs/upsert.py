"""Inserts that may be repeated, on SQLite and Postgres alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Table, inspect
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from osmosis_platform.db.base import Base
from osmosis_platform.db.changes import note_rows

# Bound parameters of one statement stay far below SQLite's limit.
_CHUNK = 200


def insert_missing(session: Session, model: type[Base], rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows; those whose key exists already are left as they are (the first one wins)."""
    for insert in _inserts(session, model, rows):
        session.execute(insert.on_conflict_do_nothing())


def insert_or_replace(
    session: Session, model: type[Base], rows: Sequence[Mapping[str, Any]], *, replace: Sequence[str]
) -> None:
    """Insert rows; where the primary key exists, the columns in `replace` take the new values (the last one wins)."""
    table = _table(model)
    key = [column.name for column in table.primary_key]
    unique = {tuple(row[name] for name in key): row for row in rows}
    for insert in _inserts(session, model, list(unique.values())):
        changed = {name: insert.excluded[name] for name in replace}
        session.execute(insert.on_conflict_do_update(index_elements=key, set_=changed))


def _inserts(session: Session, model: type[Base], rows: Sequence[Mapping[str, Any]]) -> list[Any]:
    note_rows(session, model, rows)
    dialect = postgresql if session.get_bind().dialect.name == "postgresql" else sqlite
    chunks = [rows[start : start + _CHUNK] for start in range(0, len(rows), _CHUNK)]
    return [dialect.insert(_table(model)).values([dict(row) for row in chunk]) for chunk in chunks]


def _table(model: type[Base]) -> Table:
    table = inspect(model).local_table
    assert isinstance(table, Table)
    return table

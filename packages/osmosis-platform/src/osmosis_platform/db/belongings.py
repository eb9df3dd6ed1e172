"""What hangs on a row: every row of every table that refers to it, found by following foreign keys."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import ColumnElement, Table, or_, select

from osmosis_platform.db.models import metadata


def belongings(
    root: Table, row_id: str, *, leave: Collection[str] = ()
) -> list[tuple[Table, ColumnElement[bool]]]:
    """Tables with rows that belong to one row of `root`, parents first and `root` itself foremost, and which rows these are.

    Delete them in reverse. Tables named in `leave` are left out, with whatever refers to them only.
    """
    found: dict[Table, ColumnElement[bool]] = {root: root.c.id == row_id}
    for table in metadata.sorted_tables:
        if table is root or table.name in leave:
            continue
        owners = [
            key.parent.in_(select(key.column).where(found[key.column.table]))
            for key in table.foreign_keys
            if key.column.table in found
        ]
        if owners:
            found[table] = or_(*owners)
    return list(found.items())

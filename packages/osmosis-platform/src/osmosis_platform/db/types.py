"""Column types and identifiers."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import BigInteger, DateTime
from sqlalchemy.engine import Dialect
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeDecorator


def new_id() -> str:
    """A fresh opaque identifier (UUID4 text, 36 characters)."""
    return str(uuid.uuid4())


def utc_now() -> datetime:
    """Now, with its zone."""
    return datetime.now(UTC)


class UtcDateTime(TypeDecorator[datetime]):
    """A moment, stored in UTC and read back with its zone. SQLite drops zones, so naive values are refused on the way in."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Refuse naive values and convert to UTC."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"naive datetime {value!r}: give it a zone")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Add the zone that SQLite dropped."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class unix_ms(FunctionElement[int]):
    """A moment in milliseconds since 1970. The database reckons it: for many rows that is much faster than reading moments."""

    name = "unix_ms"
    type = BigInteger()
    inherit_cache = True


@compiles(unix_ms)
def _by_epoch(element: unix_ms, compiler: SQLCompiler, **rest: Any) -> str:
    return f"CAST(EXTRACT(EPOCH FROM {compiler.process(element.clauses, **rest)}) * 1000 AS BIGINT)"


@compiles(unix_ms, "sqlite")
def _by_julian_day(element: unix_ms, compiler: SQLCompiler, **rest: Any) -> str:
    days = compiler.process(element.clauses, **rest)
    return f"CAST(ROUND((JULIANDAY({days}) - 2440587.5) * 86400000) AS INTEGER)"

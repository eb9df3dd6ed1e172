"""The declarative base of all tables."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar

from sqlalchemy import JSON, BigInteger, Integer, MetaData
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from osmosis_platform.db.types import UtcDateTime, new_id, utc_now

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}


# 64 bits: files are larger than 2 GiB. SQLite's integers always have them, and only INTEGER counts up by itself there.
WholeNumber = BigInteger().with_variant(Integer(), "sqlite")


class Base(DeclarativeBase):
    """Common types: `int` columns have 64 bits, `dict` and `list` columns are JSON, `datetime` columns are UTC."""

    # The column with the id of what pages follow: a row that changes is a change of that (db/changes.py).
    follows: ClassVar[str | None] = None

    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map = {
        int: WholeNumber,
        datetime: UtcDateTime(),
        dict[str, Any]: JSON(),
        list[Any]: JSON(),
    }


class Identified:
    """An opaque text id and the moment of creation."""

    id: Mapped[str] = mapped_column(primary_key=True, default=new_id)
    created_at: Mapped[datetime] = mapped_column(default=utc_now, index=True)

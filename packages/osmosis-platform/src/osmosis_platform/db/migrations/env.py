"""How Alembic reaches our tables: over the connection that `db/migrate.py` passes."""

from __future__ import annotations

from typing import Any, Literal

from alembic import context

from osmosis_platform.db.models import metadata
from osmosis_platform.db.types import UtcDateTime


def render_item(kind: str, item: Any, _autogenerate: Any) -> str | Literal[False]:
    """Migrations name plain types: they must not change when our classes do."""
    return "sa.DateTime(timezone=True)" if kind == "type" and isinstance(item, UtcDateTime) else False


connection = context.config.attributes.get("connection")
if connection is None:  # prints the statements for a database that somebody else changes
    context.configure(
        dialect_name=context.config.attributes["dialect"], target_metadata=metadata, literal_binds=True
    )
else:
    context.configure(
        connection=connection,
        target_metadata=metadata,
        # SQLite cannot alter a column in place: Alembic copies the table instead.
        render_as_batch=connection.dialect.name == "sqlite",
        compare_type=True,
        render_item=render_item,
    )
with context.begin_transaction():
    context.run_migrations()

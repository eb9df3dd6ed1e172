"""How Alembic reaches our tables. `db/migrate.py` passes an open connection; `make migration` opens its own database."""

from __future__ import annotations

from alembic import context

from osmosis_platform.db.models import metadata

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=metadata,
    # SQLite cannot alter a column in place: Alembic copies the table instead.
    render_as_batch=connection.dialect.name == "sqlite",
    compare_type=True,
)
with context.begin_transaction():
    context.run_migrations()

"""Advice index."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    with op.batch_alter_table("log_lines", schema=None) as batch_op:
        batch_op.create_index(
            "ix_log_lines_advice",
            ["owner_id", "sequence"],
            unique=False,
            sqlite_where=sa.text("step = 'advice'"),
            postgresql_where=sa.text("step = 'advice'"),
        )

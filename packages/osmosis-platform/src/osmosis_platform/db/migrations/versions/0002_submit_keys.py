"""Submit keys."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    with op.batch_alter_table("runs", schema=None) as batch_op:
        batch_op.add_column(sa.Column("submit_key", sa.String(), nullable=True))
        batch_op.add_column(sa.Column("submit_digest", sa.String(), nullable=True))
        batch_op.create_index("ix_runs_submit_key", ["workspace_id", "creator_id", "submit_key"], unique=True)

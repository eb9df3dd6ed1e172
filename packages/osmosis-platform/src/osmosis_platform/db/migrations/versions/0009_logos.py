"""Logos of workspaces, and how browsers name themselves."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    with op.batch_alter_table("workspaces", schema=None) as batch_op:
        batch_op.add_column(sa.Column("logo_sha256", sa.String(), nullable=True))
        batch_op.add_column(sa.Column("logo_type", sa.String(), nullable=True))
    with op.batch_alter_table("browser_sessions", schema=None) as batch_op:
        batch_op.add_column(sa.Column("agent", sa.String(), nullable=True))

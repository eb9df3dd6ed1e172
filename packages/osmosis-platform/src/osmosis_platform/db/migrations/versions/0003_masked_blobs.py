"""Masked blobs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "run_blobs",
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("sent_sha256", sa.String(), nullable=False),
        sa.Column("kept_sha256", sa.String(), nullable=False),
        sa.Column("kept_size", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_run_blobs_run_id")),
        sa.PrimaryKeyConstraint("run_id", "sent_sha256", name=op.f("pk_run_blobs")),
    )

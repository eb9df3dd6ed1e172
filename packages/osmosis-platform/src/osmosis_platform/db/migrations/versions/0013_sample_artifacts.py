"""Files of the rollouts of training samples."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "run_sample_artifacts",
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("step", number, nullable=False),
        sa.Column("row_index", number, nullable=False),
        sa.Column("sample_index", number, nullable=False),
        sa.Column("path", sa.String(), nullable=False),
        sa.Column("size", number, nullable=False),
        sa.Column("sha256", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_run_sample_artifacts_run_id")),
        sa.PrimaryKeyConstraint(
            "run_id", "step", "row_index", "sample_index", "path", name=op.f("pk_run_sample_artifacts")
        ),
    )

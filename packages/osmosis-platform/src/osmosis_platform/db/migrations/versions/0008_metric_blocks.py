"""Metric blocks: summaries of the points that are there, see runs/series.py."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "run_metric_blocks",
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("block", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("count", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("total", sa.Double(), nullable=False),
        sa.Column("low", sa.Double(), nullable=False),
        sa.Column("low_step", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("high", sa.Double(), nullable=False),
        sa.Column("high_step", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_run_metric_blocks_run_id")),
        sa.PrimaryKeyConstraint("run_id", "key", "block", name=op.f("pk_run_metric_blocks")),
    )
    op.execute(
        """
        INSERT INTO run_metric_blocks (run_id, key, block, count, total, low, low_step, high, high_step)
        SELECT b.run_id, b.key, b.block, b.count, b.total,
               b.low, (SELECT min(step) FROM run_metrics m WHERE m.run_id = b.run_id AND m.key = b.key
                       AND m.step BETWEEN b.block * 64 AND b.block * 64 + 63 AND m.value = b.low),
               b.high, (SELECT min(step) FROM run_metrics m WHERE m.run_id = b.run_id AND m.key = b.key
                        AND m.step BETWEEN b.block * 64 AND b.block * 64 + 63 AND m.value = b.high)
        FROM (SELECT run_id, key, step / 64 AS block, count(*) AS count, sum(value) AS total, min(value) AS low,
                     max(value) AS high
              FROM run_metrics GROUP BY run_id, key, step / 64) b
        """
    )

"""Metric blocks get levels, and the times of their extremes, see runs/blocks.py."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

TOP = 6


def upgrade() -> None:
    """Apply. Blocks are sums of points that are there: they are made anew."""
    op.drop_table("run_metric_blocks")
    whole: Any = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    real: Any = sa.Double()
    columns = [
        ("level", whole),
        ("block", whole),
        ("count", whole),
        ("total", real),
        ("low", real),
        ("low_step", whole),
    ]
    columns += [("low_at", whole), ("high", real), ("high_step", whole), ("high_at", whole)]
    op.create_table(
        "run_metric_blocks",
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        *(sa.Column(name, kind, nullable=False) for name, kind in columns),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_run_metric_blocks_run_id")),
        sa.PrimaryKeyConstraint("run_id", "key", "level", "block", name=op.f("pk_run_metric_blocks")),
    )
    op.execute(_of_points())
    for level in range(1, TOP + 1):
        op.execute(_of_blocks(level))


def _of_points() -> str:
    if op.get_context().dialect.name == "postgresql":
        at = "CAST(EXTRACT(EPOCH FROM {0}.timestamp) * 1000 AS BIGINT)"
    else:
        at = "CAST(ROUND((JULIANDAY({0}.timestamp) - 2440587.5) * 86400000) AS INTEGER)"
    first = (
        "(SELECT min(step) FROM run_metrics m WHERE m.run_id = b.run_id AND m.key = b.key "
        "AND m.step BETWEEN b.block * 64 AND b.block * 64 + 63 AND m.value = b.{0})"
    )
    return f"""
        INSERT INTO run_metric_blocks (run_id, key, level, block, count, total, low, low_step, low_at, high, high_step, high_at)
        SELECT b.run_id, b.key, 0, b.block, b.count, b.total,
               b.low, l.step, {at.format("l")}, b.high, h.step, {at.format("h")}
        FROM (SELECT run_id, key, step / 64 AS block, count(*) AS count, sum(value) AS total, min(value) AS low,
                     max(value) AS high
              FROM run_metrics GROUP BY run_id, key, step / 64) b
        JOIN run_metrics l ON l.run_id = b.run_id AND l.key = b.key AND l.step = {first.format("low")}
        JOIN run_metrics h ON h.run_id = b.run_id AND h.key = b.key AND h.step = {first.format("high")}
    """


def _of_blocks(level: int) -> str:
    below = level - 1
    first = (
        f"(SELECT min(block) FROM run_metric_blocks m WHERE m.run_id = b.run_id AND m.key = b.key AND m.level = {below} "
        "AND m.block BETWEEN b.block * 4 AND b.block * 4 + 3 AND m.{0} = b.{0})"
    )
    join = f"JOIN run_metric_blocks {{1}} ON {{1}}.run_id = b.run_id AND {{1}}.key = b.key AND {{1}}.level = {below} AND {{1}}.block = "
    return f"""
        INSERT INTO run_metric_blocks (run_id, key, level, block, count, total, low, low_step, low_at, high, high_step, high_at)
        SELECT b.run_id, b.key, {level}, b.block, b.count, b.total,
               b.low, l.low_step, l.low_at, b.high, h.high_step, h.high_at
        FROM (SELECT run_id, key, block / 4 AS block, sum(count) AS count, sum(total) AS total, min(low) AS low, max(high) AS high
              FROM run_metric_blocks WHERE level = {below} GROUP BY run_id, key, block / 4) b
        {join.format("", "l")}{first.format("low")}
        {join.format("", "h")}{first.format("high")}
    """

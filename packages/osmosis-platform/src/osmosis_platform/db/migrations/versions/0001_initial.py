"""The first schema."""

from __future__ import annotations

from alembic import op

from osmosis_platform.db.models import metadata

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    metadata.create_all(op.get_bind())

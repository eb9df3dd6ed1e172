"""Tables of rollouts."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from osmosis_platform.db.base import Base, Identified
from osmosis_platform.db.types import utc_now


class Rollout(Identified, Base):
    """A rollout folder found below `rollouts/` on one branch, at its last synced commit."""

    __tablename__ = "rollouts"
    __table_args__ = (UniqueConstraint("workspace_id", "branch", "name"),)
    workspace_id: Mapped[str] = mapped_column(ForeignKey("workspaces.id"), index=True)
    repository_id: Mapped[str] = mapped_column(ForeignKey("repositories.id"))
    name: Mapped[str]
    branch: Mapped[str]
    commit_sha: Mapped[str]
    description: Mapped[str | None]
    readme: Mapped[str | None]
    is_active: Mapped[bool] = mapped_column(default=True)
    last_synced_at: Mapped[datetime] = mapped_column(default=utc_now)

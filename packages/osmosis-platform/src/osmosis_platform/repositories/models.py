"""Tables of repositories."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from osmosis_platform.db.base import Base, Identified


class Repository(Identified, Base):
    """The one repository of a workspace. `full_name` is `owner/repo`; `identity` is the same in lower case."""

    __tablename__ = "repositories"
    workspace_id: Mapped[str] = mapped_column(ForeignKey("workspaces.id"), unique=True)
    full_name: Mapped[str]
    identity: Mapped[str] = mapped_column(unique=True)
    kind: Mapped[str] = mapped_column(default="builtin")
    default_branch: Mapped[str] = mapped_column(default="main")


class SyncEvent(Identified, Base):
    """One sync of one branch. `status`: pending, syncing, success, failed."""

    __tablename__ = "sync_events"
    __table_args__ = (Index("ix_sync_events_repository_created", "repository_id", "created_at"),)
    repository_id: Mapped[str] = mapped_column(ForeignKey("repositories.id"))
    branch: Mapped[str]
    commit_sha: Mapped[str | None]
    author: Mapped[str | None]
    message: Mapped[str | None]
    status: Mapped[str] = mapped_column(default="pending")
    error: Mapped[str | None]
    rollouts_found: Mapped[int | None]
    finished_at: Mapped[datetime | None]

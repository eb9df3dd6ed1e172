"""Tables of development servers."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from osmosis_platform.db.base import Base, Identified

LIVE = ("pending", "running")


class DevServer(Identified, Base):
    """A rollout server that is no part of a run. `status`: pending, running, then stopped, expired or failed.

    `port` is where the process listens on loopback while it runs; only the hash of the key that callers show is kept.
    """

    __tablename__ = "dev_servers"
    __table_args__ = (Index("ix_dev_servers_workspace_created", "workspace_id", "created_at"),)
    workspace_id: Mapped[str] = mapped_column(ForeignKey("workspaces.id"))
    creator_id: Mapped[str] = mapped_column(ForeignKey("users.id"))
    rollout_name: Mapped[str]
    repository_path: Mapped[str]
    entrypoint: Mapped[str]
    commit_sha: Mapped[str]
    status: Mapped[str] = mapped_column(default="pending")
    port: Mapped[int | None]
    key_hash: Mapped[str]
    error: Mapped[str | None]
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]
    expires_at: Mapped[datetime | None]

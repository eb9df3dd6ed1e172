"""Tables of repositories."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from osmosis_platform.db.base import Base, Identified


class Repository(Identified, Base):
    """The one repository of a workspace. `full_name` is `owner/repo`; `identity` is the same in lower case.

    `kind`: `builtin`, which members push to here, or `mirror` of the repository at `remote_url`.
    """

    __tablename__ = "repositories"
    workspace_id: Mapped[str] = mapped_column(ForeignKey("workspaces.id"), unique=True)
    full_name: Mapped[str]
    identity: Mapped[str] = mapped_column(unique=True)
    kind: Mapped[str] = mapped_column(default="builtin")
    default_branch: Mapped[str] = mapped_column(default="main")
    remote_url: Mapped[str | None]


class Connection(Identified, Base):
    """How a mirror reaches its origin. Access token and webhook secret are only ever ciphertext, together.

    `heads` are the branches as they were last fetched; `fetched_at` is when that fetch began, `error` why a later one failed.
    `builtin_name` is the workspace's built-in repository, which waits meanwhile.
    """

    __tablename__ = "repository_connections"
    repository_id: Mapped[str] = mapped_column(ForeignKey("repositories.id"), unique=True)
    builtin_name: Mapped[str | None]
    key_id: Mapped[str]
    nonce: Mapped[bytes]
    ciphertext: Mapped[bytes]
    token_hint: Mapped[str | None]
    secret_hint: Mapped[str | None]
    heads: Mapped[dict[str, Any]] = mapped_column(default=dict)
    fetched_at: Mapped[datetime | None]
    tried_at: Mapped[datetime | None]
    error: Mapped[str | None]


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

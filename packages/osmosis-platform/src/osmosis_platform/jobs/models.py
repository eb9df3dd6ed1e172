"""Tables of jobs."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Index
from sqlalchemy.orm import Mapped, mapped_column

from osmosis_platform.db.base import Base, Identified
from osmosis_platform.db.types import utc_now


class Job(Identified, Base):
    """A durable unit of work. `status`: queued, running, done, failed, cancelled.

    A worker holds a job by lease (`lease_owner`, `lease_until`); `fencing_token` grows with each lease, and every write of a
    holder is conditional on it, so that a worker that lost its lease can change nothing.
    """

    __tablename__ = "jobs"
    __table_args__ = (Index("ix_jobs_claim", "queue", "status", "run_at"),)
    queue: Mapped[str]
    kind: Mapped[str]
    payload: Mapped[dict[str, Any]]
    dedupe_key: Mapped[str | None] = mapped_column(unique=True)
    status: Mapped[str] = mapped_column(default="queued")
    run_at: Mapped[datetime] = mapped_column(default=utc_now)
    attempts: Mapped[int] = mapped_column(default=0)
    max_attempts: Mapped[int] = mapped_column(default=3)
    lease_owner: Mapped[str | None]
    lease_until: Mapped[datetime | None]
    fencing_token: Mapped[int] = mapped_column(default=0)
    cancel_requested: Mapped[bool] = mapped_column(default=False)
    error: Mapped[str | None]
    finished_at: Mapped[datetime | None]

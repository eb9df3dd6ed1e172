"""Durable work of repositories."""

from __future__ import annotations

from sqlalchemy.orm import Session

from osmosis_platform.context import Platform
from osmosis_platform.db.types import utc_now
from osmosis_platform.jobs.queue import ClaimedJob
from osmosis_platform.jobs.runner import Work
from osmosis_platform.repositories.models import SyncEvent
from osmosis_platform.repositories.service import SYNC_JOB, sync_branch


def handle_sync(job: ClaimedJob, platform: Platform) -> None:
    """Sync the branch of the event named in the payload."""
    sync_branch(platform, job.payload["sync_id"])


def sync_given_up(session: Session, job: ClaimedJob, reason: str) -> None:
    """The sync kept failing: its event says so."""
    event = session.get(SyncEvent, job.payload["sync_id"])
    if event is not None and event.status in ("pending", "syncing"):
        event.status, event.error, event.finished_at = "failed", reason, utc_now()


WORK = {SYNC_JOB: Work(handle_sync, sync_given_up)}

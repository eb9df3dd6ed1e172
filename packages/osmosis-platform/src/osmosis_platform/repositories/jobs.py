"""Durable work of repositories."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.orm import Session

from osmosis_platform.context import Platform
from osmosis_platform.db.types import utc_now
from osmosis_platform.jobs.queue import ClaimedJob
from osmosis_platform.jobs.runner import Work
from osmosis_platform.repositories.mirrors import FETCH_JOB, FETCH_SECONDS, fetch
from osmosis_platform.repositories.models import SyncEvent
from osmosis_platform.repositories.service import SYNC_JOB, sync_branch


def handle_sync(job: ClaimedJob, platform: Platform) -> None:
    """Sync the branch of the event named in the payload."""
    sync_branch(platform, job.payload["sync_id"])


def handle_fetch(job: ClaimedJob, platform: Platform) -> None:
    """Fetch the mirror named in the payload; what its host refuses is in the sync history then."""
    wanted_at = datetime.fromisoformat(job.payload["wanted_at"])
    fetch(
        platform,
        job.payload["repository_id"],
        seconds=FETCH_SECONDS,
        sync_id=job.payload.get("sync_id"),
        wanted_at=wanted_at,
    )


def sync_given_up(session: Session, job: ClaimedJob, reason: str) -> None:
    """The sync or fetch kept failing: its event says so."""
    event = session.get(SyncEvent, job.payload.get("sync_id", ""))
    if event is not None and event.status in ("pending", "syncing"):
        event.status, event.error, event.finished_at = "failed", reason, utc_now()


WORK = {SYNC_JOB: Work(handle_sync, sync_given_up), FETCH_JOB: Work(handle_fetch, sync_given_up)}

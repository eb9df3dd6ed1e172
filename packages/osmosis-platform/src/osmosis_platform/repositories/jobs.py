"""Durable handler of repository sync."""

from __future__ import annotations

from osmosis_platform.context import Platform
from osmosis_platform.jobs.queue import ClaimedJob
from osmosis_platform.repositories.service import SYNC_JOB, sync_branch


def handle_sync(job: ClaimedJob, platform: Platform) -> None:
    """Sync the branch of the event named in the payload."""
    sync_branch(platform, job.payload["sync_id"])


HANDLERS = {SYNC_JOB: handle_sync}

"""Durable work of datasets."""

from __future__ import annotations

from sqlalchemy.orm import Session

from osmosis_platform.context import Platform
from osmosis_platform.datasets.announcements import announce_outcome
from osmosis_platform.datasets.models import Dataset
from osmosis_platform.datasets.service import PROCESS_JOB, process
from osmosis_platform.jobs.queue import ClaimedJob
from osmosis_platform.jobs.runner import Work
from osmosis_platform.runs.service import log


def handle_process(job: ClaimedJob, platform: Platform) -> None:
    """Process the dataset named in the payload."""
    process(platform, job.payload["dataset_id"])


def processing_given_up(session: Session, job: ClaimedJob, reason: str) -> None:
    """The platform could not process the file: the dataset is in error, with the reason."""
    dataset = session.get(Dataset, job.payload["dataset_id"])
    if dataset is not None and dataset.status in ("pending", "processing"):
        dataset.status = "error"
        dataset.error = f"The platform could not process the file: {reason}"
        log(session, dataset.id, dataset.error, level="error", step="processing")
        announce_outcome(session, dataset)


WORK = {PROCESS_JOB: Work(handle_process, processing_given_up)}

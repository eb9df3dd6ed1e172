"""Durable handler of dataset processing."""

from __future__ import annotations

from osmosis_platform.context import Platform
from osmosis_platform.datasets.service import PROCESS_JOB, process
from osmosis_platform.jobs.queue import ClaimedJob


def handle_process(job: ClaimedJob, platform: Platform) -> None:
    """Process the dataset named in the payload."""
    process(platform, job.payload["dataset_id"])


HANDLERS = {PROCESS_JOB: handle_process}

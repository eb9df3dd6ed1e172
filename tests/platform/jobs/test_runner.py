"""The runner: outcomes of handlers, cancellation, lost leases and a clean stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import update
from sqlalchemy.orm import Session

from osmosis_platform.context import Platform
from osmosis_platform.errors import InvalidInput, Unavailable
from osmosis_platform.jobs.models import Job
from osmosis_platform.jobs.queue import ClaimedJob
from osmosis_platform.jobs.runner import GiveBack, Handler, JobRunner, RetryLater, Work


def until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.005)


def add(platform: Platform, **options: int) -> str:
    with platform.database.write() as session:
        return platform.jobs.enqueue(session, "light", "work", {"n": 1}, **options).id


def status(platform: Platform, job_id: str) -> str:
    with platform.database.read() as session:
        return session.get_one(Job, job_id).status


@contextmanager
def running(platform: Platform, handler: Handler, gave_up: object = None) -> Iterator[JobRunner]:
    runner = JobRunner(platform, {"work": Work(handler, gave_up)}, {"light": 2})  # type: ignore[arg-type]
    runner.start()
    try:
        yield runner
    finally:
        assert runner.stop(10)


def test_done(platform: Platform) -> None:
    seen: list[ClaimedJob] = []
    with running(platform, lambda job, _: seen.append(job)):
        job_id = add(platform)
        until(lambda: status(platform, job_id) == "done")
    assert [(job.payload, job.attempt) for job in seen] == [({"n": 1}, 1)]


def test_errors_are_tried_again_and_then_given_up_in_one_transaction(platform: Platform) -> None:
    attempts: list[int] = []
    given_up: list[tuple[str, str]] = []

    def handler(job: ClaimedJob, _platform: Platform) -> None:
        attempts.append(job.attempt)
        raise RetryLater("still broken", delay=0.0)

    def gave_up(session: Session, job: ClaimedJob, reason: str) -> None:
        given_up.append((session.get_one(Job, job.id).status, reason))

    with running(platform, handler, gave_up):
        job_id = add(platform, max_attempts=3)
        until(lambda: status(platform, job_id) == "failed")
    assert attempts == [1, 2, 3]
    assert given_up == [("failed", "still broken")]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (InvalidInput("the file is not CSV"), "failed"),
        (Unavailable("the index does not answer"), "queued"),
        (ZeroDivisionError("division"), "queued"),
    ],
)
def test_what_the_user_must_mend_is_not_tried_again(
    platform: Platform, error: Exception, expected: str
) -> None:
    def handler(_job: ClaimedJob, _platform: Platform) -> None:
        raise error

    def settled() -> bool:
        with platform.database.read() as session:
            job = session.get_one(Job, job_id)
            return job.error is not None and job.status == expected

    with running(platform, handler):
        job_id = add(platform)
        until(settled)


def test_job_of_dead_processes_is_given_up(platform: Platform) -> None:
    job_id = add(platform, max_attempts=2)
    for _ in range(2):
        assert platform.jobs.claim("light") is not None
        platform.jobs.release_leases_of_this_place()
    with running(platform, lambda _job, _platform: pytest.fail("must not run")):
        until(lambda: status(platform, job_id) == "failed")


def test_unknown_kind_is_given_up(platform: Platform) -> None:
    with running(platform, lambda _job, _platform: None):
        with platform.database.write() as session:
            job_id = platform.jobs.enqueue(session, "light", "nobody", {}).id
        until(lambda: status(platform, job_id) == "failed")


def test_cancel_reaches_the_handler(platform: Platform) -> None:
    started = threading.Event()

    def handler(job: ClaimedJob, _platform: Platform) -> None:
        started.set()
        assert job.wait_interrupted(10)
        assert job.cancelled()

    with running(platform, handler):
        job_id = add(platform)
        assert started.wait(10)
        with platform.database.write() as session:
            platform.jobs.request_cancel(session, job_id)
        until(lambda: status(platform, job_id) == "cancelled")


def test_stop_gives_the_job_back(platform: Platform) -> None:
    started = threading.Event()

    def handler(job: ClaimedJob, _platform: Platform) -> None:
        started.set()
        assert job.wait_interrupted(10)
        if job.stopping():
            raise GiveBack

    with running(platform, handler):
        job_id = add(platform)
        assert started.wait(10)
    with platform.database.read() as session:
        job = session.get_one(Job, job_id)
        assert (job.status, job.attempts, job.lease_owner) == ("queued", 0, None)


def test_lost_lease_is_told_and_what_the_handler_did_is_not_recorded(platform: Platform) -> None:
    platform.jobs.lease_seconds = 0.3
    started, lost = threading.Event(), threading.Event()

    def handler(job: ClaimedJob, _platform: Platform) -> None:
        started.set()
        if job.wait_interrupted(10) and job.lost():
            lost.set()

    with running(platform, handler):
        job_id = add(platform)
        assert started.wait(10)
        with platform.database.write() as session:  # another worker took it over
            session.execute(
                update(Job)
                .where(Job.id == job_id)
                .values(fencing_token=Job.fencing_token + 1, lease_owner="other")
            )
        assert lost.wait(10)
    assert status(platform, job_id) == "running"


def test_heartbeat_holds_a_job_longer_than_its_lease(platform: Platform) -> None:
    platform.jobs.lease_seconds = 0.3
    runs: list[int] = []

    def handler(job: ClaimedJob, _platform: Platform) -> None:
        runs.append(job.attempt)
        job.wait_interrupted(1.0)

    with running(platform, handler):
        job_id = add(platform)
        until(lambda: status(platform, job_id) == "done")
    assert runs == [1]

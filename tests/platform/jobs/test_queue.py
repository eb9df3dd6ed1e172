"""Jobs are claimed once, held by lease, and written only by whoever holds them."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from sqlalchemy import select, update

from osmosis_platform.context import Platform
from osmosis_platform.db.types import utc_now
from osmosis_platform.jobs.models import Job
from osmosis_platform.jobs.queue import ClaimedJob, JobQueue, LeaseLost


def add(platform: Platform, number: int = 0, **options: object) -> str:
    with platform.database.write() as session:
        return platform.jobs.enqueue(session, "light", "count", {"n": number}, **options).id  # type: ignore[arg-type]


def take(platform: Platform) -> ClaimedJob:
    job = platform.jobs.claim("light")
    assert job is not None
    return job


def row(platform: Platform, job_id: str) -> Job:
    with platform.database.read() as session:
        return session.get_one(Job, job_id)


def expire(platform: Platform, job_id: str) -> None:
    with platform.database.write() as session:
        session.execute(
            update(Job).where(Job.id == job_id).values(lease_until=utc_now() - timedelta(seconds=1))
        )


def test_a_job_exists_only_when_its_transaction_commits(platform: Platform) -> None:
    def broken() -> None:
        with platform.database.write() as session:
            platform.jobs.enqueue(session, "light", "count", {})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        broken()
    assert platform.jobs.claim("light") is None
    seen = platform.jobs.changes
    job_id = add(platform)
    assert platform.jobs.changes > seen
    assert take(platform).id == job_id


def test_claims_are_oldest_first_and_per_queue(platform: Platform) -> None:
    first, second = add(platform, 1), add(platform, 2)
    add(platform, 3, run_at=utc_now() + timedelta(hours=1))
    assert platform.jobs.claim("runs") is None
    jobs = [take(platform), take(platform)]
    assert [(job.id, job.payload, job.attempt) for job in jobs] == [
        (first, {"n": 1}, 1),
        (second, {"n": 2}, 1),
    ]
    assert platform.jobs.claim("light") is None


def test_many_threads_claim_every_job_exactly_once(platform: Platform) -> None:
    expected = {add(platform, number) for number in range(60)}
    claimed: list[str] = []

    def work() -> None:
        while (job := platform.jobs.claim("light")) is not None:
            claimed.append(job.id)
            with platform.database.write() as session:
                platform.jobs.finish(session, job)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(claimed) == 60
    assert set(claimed) == expected


def test_same_key_is_one_job_until_it_ends(platform: Platform) -> None:
    first = add(platform, dedupe_key="sync:abc")
    assert add(platform, dedupe_key="sync:abc") == first
    job = take(platform)
    assert add(platform, dedupe_key="sync:abc") == first
    with platform.database.write() as session:
        platform.jobs.finish(session, job)
    assert add(platform, dedupe_key="sync:abc") != first


def test_who_lost_the_lease_can_write_nothing(platform: Platform) -> None:
    job_id = add(platform)
    old = take(platform)
    expire(platform, job_id)
    new = take(platform)
    assert (new.id, new.attempt) == (job_id, 2)
    assert new.fencing_token > old.fencing_token
    jobs = platform.jobs
    for write in (jobs.finish, jobs.cancel, jobs.give_back, jobs.guard):
        with pytest.raises(LeaseLost), platform.database.write() as session:
            write(session, old)
    for fail in (jobs.fail, lambda s, j, e: jobs.retry(s, j, e, 0.0)):
        with pytest.raises(LeaseLost), platform.database.write() as session:
            fail(session, old, "no")
    assert jobs.heartbeat([old, new]) == {job_id: False}
    with platform.database.write() as session:
        jobs.guard(session, new)
        jobs.finish(session, new)
    assert row(platform, job_id).status == "done"


def test_heartbeat_keeps_a_job_and_tells_of_cancellation(platform: Platform) -> None:
    job_id = add(platform)
    job = take(platform)
    before = row(platform, job_id).lease_until
    assert platform.jobs.heartbeat([job]) == {job_id: False}
    after = row(platform, job_id).lease_until
    assert before is not None
    assert after is not None
    assert after > before
    told: list[str] = []
    platform.jobs.on_cancel(told.append)
    with platform.database.write() as session:
        assert platform.jobs.request_cancel(session, job_id)
        assert told == []
    assert told == [job_id]
    assert platform.jobs.heartbeat([job]) == {job_id: True}
    with platform.database.write() as session:
        platform.jobs.cancel(session, job)
    assert row(platform, job_id).status == "cancelled"


def test_queued_job_is_cancelled_at_once_and_ended_one_not_at_all(platform: Platform) -> None:
    job_id = add(platform, dedupe_key="run:1")
    with platform.database.write() as session:
        assert platform.jobs.request_cancel(session, job_id)
    assert row(platform, job_id).status == "cancelled"
    assert platform.jobs.claim("light") is None
    with platform.database.write() as session:
        assert not platform.jobs.request_cancel(session, job_id)
        assert platform.jobs.find(session, "run:1") is None


def test_cancellation_survives_the_worker(platform: Platform) -> None:
    job_id = add(platform)
    take(platform)
    with platform.database.write() as session:
        platform.jobs.request_cancel(session, job_id)
    expire(platform, job_id)
    assert take(platform).cancelled()


def test_retry_waits_and_give_back_does_not_count(platform: Platform) -> None:
    job_id = add(platform)
    job = take(platform)
    with platform.database.write() as session:
        platform.jobs.give_back(session, job)
    job = take(platform)
    assert job.attempt == 1
    with platform.database.write() as session:
        platform.jobs.retry(session, job, "the disk was full", 3600)
    assert platform.jobs.claim("light") is None
    later = row(platform, job_id)
    assert (later.status, later.error, later.attempts) == ("queued", "the disk was full", 1)
    assert later.run_at > utc_now() + timedelta(minutes=59)


def test_start_releases_the_leases_of_this_folder_only(platform: Platform) -> None:
    mine, other = add(platform), add(platform)
    take(platform)
    stranger = JobQueue(platform.database, place=platform.jobs.place + "2")
    assert stranger.claim("light") is not None
    fresh = JobQueue(platform.database, place=platform.jobs.place)
    assert fresh.release_leases_of_this_place() == 1
    assert row(platform, mine).status == "queued"
    assert row(platform, other).status == "running"


def test_jobs_that_ended_long_ago_are_forgotten(platform: Platform) -> None:
    waiting = add(platform, run_at=utc_now() + timedelta(hours=1))
    old, fresh = add(platform), add(platform)
    for _ in range(2):
        job = take(platform)
        with platform.database.write() as session:
            platform.jobs.finish(session, job)
    with platform.database.write() as session:
        long_ago = utc_now() - timedelta(days=8)
        session.execute(update(Job).where(Job.id == old).values(finished_at=long_ago))
        session.execute(update(Job).where(Job.id == waiting).values(created_at=long_ago))
    assert platform.jobs.forget_ended() == 1
    with platform.database.read() as session:
        assert set(session.scalars(select(Job.id))) == {waiting, fresh}

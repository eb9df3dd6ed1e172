"""Threads that claim jobs and run their handlers, and one that keeps the leases alive."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from osmosis_platform.errors import PlatformError
from osmosis_platform.jobs.queue import ClaimedJob, JobQueue, LeaseLost

if TYPE_CHECKING:
    from osmosis_platform.context import Platform

log = logging.getLogger("osmosis_platform.jobs")

Handler = Callable[[ClaimedJob, "Platform"], None]
# Called in the transaction that gives a job up for good, so that what it was for can be marked failed with it.
GaveUp = Callable[[Session, ClaimedJob, str], None]

IDLE_SECONDS = 1.0
FIRST_DELAY = 1.0
LONGEST_DELAY = 300.0


class GiveBack(Exception):
    """From a handler: put the job back at once, as if it had not been taken. For a process that is stopping."""


class RetryLater(Exception):
    """From a handler: try again after `delay` seconds (default: growing with each attempt)."""

    def __init__(self, reason: str, delay: float | None = None) -> None:
        super().__init__(reason)
        self.delay = delay


@dataclass(frozen=True, slots=True)
class Work:
    """What to do with jobs of one kind."""

    handler: Handler
    gave_up: GaveUp | None = None


class JobRunner:
    """Runs jobs of this process: `threads` says how many at a time per queue, `work` what to do per kind.

    A handler that returns has finished its job, or cancelled it when it was asked to. One that raises PlatformError with
    a status below 500 has failed for good; any other error is tried again until `max_attempts`.
    """

    def __init__(self, platform: Platform, work: Mapping[str, Work], threads: Mapping[str, int]) -> None:
        self._platform = platform
        self._queue: JobQueue = platform.jobs
        self._work = dict(work)
        self._held: dict[str, ClaimedJob] = {}
        self._renewed: dict[str, float] = {}
        self._guard = threading.Lock()
        self._stop = threading.Event()
        self._drained = threading.Event()
        self._workers = [
            threading.Thread(target=self._serve, args=(queue,), name=f"jobs-{queue}-{number}", daemon=True)
            for queue, count in threads.items()
            for number in range(count)
        ]
        self._heart = threading.Thread(target=self._keep_leases, name="jobs-heartbeat", daemon=True)
        self._queue.on_cancel(self._tell_cancelled)

    def start(self) -> None:
        """Begin to claim."""
        for thread in (*self._workers, self._heart):
            thread.start()

    def stop(self, timeout: float = 30.0) -> bool:
        """Claim no more, ask handlers to stop, and wait for them; False when some did not stop in `timeout` seconds.

        Jobs of those keep their leases; they are released when the next process starts.
        """
        self._stop.set()
        self._queue.wake()
        with self._guard:
            for job in self._held.values():
                job.tell_stopping()
        deadline = time.monotonic() + timeout
        for thread in self._workers:
            thread.join(max(0.0, deadline - time.monotonic()))
        self._drained.set()
        self._heart.join(max(1.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._workers)

    def _serve(self, queue: str) -> None:
        while not self._stop.is_set():
            seen = self._queue.changes
            try:
                job = self._queue.claim(queue)
            except SQLAlchemyError:
                log.exception("cannot claim jobs of %s; trying again", queue)
                self._stop.wait(IDLE_SECONDS)
                continue
            if job is None:
                self._queue.wait(seen, IDLE_SECONDS)
            else:
                self._run(job)

    def _run(self, job: ClaimedJob) -> None:
        with self._guard:
            self._held[job.id] = job
            self._renewed[job.id] = time.monotonic()
            if self._stop.is_set():
                job.tell_stopping()
        try:
            self._settle(job, self._outcome(job))
        except LeaseLost:
            log.warning("job %s (%s): the lease was lost, another worker has it", job.id, job.kind)
        except SQLAlchemyError:
            log.exception(
                "job %s (%s): its end cannot be recorded; it runs again when its lease ends", job.id, job.kind
            )
        finally:
            with self._guard:
                self._held.pop(job.id, None)
                self._renewed.pop(job.id, None)

    def _outcome(self, job: ClaimedJob) -> Callable[[Session], None]:
        """Run the handler; returns what to write about it."""
        queue = self._queue
        work = self._work.get(job.kind)
        if work is None:
            return lambda session: self._give_up(session, job, f"nothing here does jobs of kind {job.kind}")
        if job.attempt > job.max_attempts:
            return lambda session: self._give_up(
                session, job, f"the platform ended {job.max_attempts} times while doing this"
            )
        try:
            work.handler(job, self._platform)
        except LeaseLost:
            raise
        except GiveBack:
            return lambda session: queue.give_back(session, job)
        except RetryLater as later:
            return self._again(job, str(later), later.delay)
        except PlatformError as error:
            if error.status < 500:
                reason = error.message
                return lambda session: self._give_up(session, job, reason)
            log.exception("job %s (%s) failed in attempt %d", job.id, job.kind, job.attempt)
            return self._again(job, error.message, None)
        except Exception as error:
            log.exception("job %s (%s) failed in attempt %d", job.id, job.kind, job.attempt)
            return self._again(job, f"{type(error).__name__}: {error}", None)
        if job.cancelled():
            return lambda session: queue.cancel(session, job)
        return lambda session: queue.finish(session, job)

    def _again(self, job: ClaimedJob, reason: str, delay: float | None) -> Callable[[Session], None]:
        if job.attempt >= job.max_attempts:
            return lambda session: self._give_up(session, job, reason)
        wait = delay if delay is not None else _backoff(job.attempt)
        return lambda session: self._queue.retry(session, job, reason, wait)

    def _give_up(self, session: Session, job: ClaimedJob, reason: str) -> None:
        log.error("job %s (%s) is given up: %s", job.id, job.kind, reason)
        self._queue.fail(session, job, reason)
        work = self._work.get(job.kind)
        if work is not None and work.gave_up is not None:
            work.gave_up(session, job, reason)

    def _settle(self, job: ClaimedJob, write: Callable[[Session], None]) -> None:
        with self._platform.database.write() as session:
            write(session)

    def _keep_leases(self) -> None:
        interval = self._queue.lease_seconds / 3
        while not self._drained.wait(interval):
            with self._guard:
                held = list(self._held.values())
            if held:
                self._beat(held)

    def _beat(self, held: list[ClaimedJob]) -> None:
        asked = time.monotonic()
        try:
            kept = self._queue.heartbeat(held)
        except SQLAlchemyError:
            log.exception("cannot extend the leases of %d jobs", len(held))
            kept = None
        with self._guard:
            for job in held:
                if job.id not in self._held:
                    continue  # ended meanwhile
                if kept is None:
                    if asked - self._renewed[job.id] > self._queue.lease_seconds:
                        job.tell_lost()
                elif job.id not in kept:
                    job.tell_lost()
                else:
                    self._renewed[job.id] = asked
                    if kept[job.id]:
                        job.tell_cancelled()

    def _tell_cancelled(self, job_id: str) -> None:
        with self._guard:
            job = self._held.get(job_id)
        if job is not None:
            job.tell_cancelled()


def _backoff(attempt: int) -> float:
    """Seconds until the next try: 1, 2, 4, ... at most 300, with up to half of it random so that retries spread."""
    longest: float = min(LONGEST_DELAY, FIRST_DELAY * 2.0 ** (attempt - 1))
    return longest * (0.5 + random.random() / 2)

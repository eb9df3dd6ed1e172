"""The durable queue of background work, kept in the domain database.

A job is enqueued in the transaction of the change that needs it, so the two can never disagree. A worker holds a job by a
lease that it keeps extending; each lease has a larger fencing token, and every write of a holder is conditional on its own.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, cast

from sqlalchemy import CursorResult, Update, delete, event, select, update
from sqlalchemy.orm import Session

from osmosis_platform.db.session import Database
from osmosis_platform.db.types import utc_now
from osmosis_platform.jobs import statements
from osmosis_platform.jobs.models import Job

LIVE = ("queued", "running")


class LeaseLost(Exception):
    """Another worker may have the job; whatever was about to be written must not be."""


@dataclass(eq=False, slots=True)
class ClaimedJob:
    """One worker's hold on one job. `attempt` counts from 1. Handlers look at `cancelled`, `lost` and `stopping` now and then."""

    id: str
    queue: str
    kind: str
    payload: dict[str, Any]
    attempt: int
    max_attempts: int
    fencing_token: int
    _cancelled: threading.Event = field(default_factory=threading.Event)
    _lost: threading.Event = field(default_factory=threading.Event)
    _stopping: threading.Event = field(default_factory=threading.Event)
    _interrupted: threading.Event = field(default_factory=threading.Event)

    def cancelled(self) -> bool:
        """Whether somebody asked for this work to stop: clean up and return."""
        return self._cancelled.is_set()

    def lost(self) -> bool:
        """Whether the lease is gone: stop at once and write nothing."""
        return self._lost.is_set()

    def stopping(self) -> bool:
        """Whether this process is shutting down: raise GiveBack soon, the next process continues."""
        return self._stopping.is_set()

    def wait_interrupted(self, timeout: float) -> bool:
        """Sleep until the job is cancelled, lost or stopping, at most `timeout` seconds; True when it is."""
        return self._interrupted.wait(timeout)

    def tell_cancelled(self) -> None:
        """From the runner: see `cancelled`."""
        self._cancelled.set()
        self._interrupted.set()

    def tell_lost(self) -> None:
        """From the runner: see `lost`."""
        self._lost.set()
        self._interrupted.set()

    def tell_stopping(self) -> None:
        """From the runner: see `stopping`."""
        self._stopping.set()
        self._interrupted.set()


class JobQueue:
    """All queues of one database. `place` names the data folder on its machine: see `context.place_of`."""

    def __init__(self, database: Database, *, place: str, lease_seconds: float = 15.0) -> None:
        self.database = database
        self.place = place
        self.owner = f"{place}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        self.lease_seconds = lease_seconds
        self._changed = threading.Condition()
        self._changes = 0
        self._on_cancel: list[Callable[[str], None]] = []
        self._busy: dict[str, bool] = {}
        self._next_look: dict[str, float] = {}

    # -- Asking for work: in the caller's transaction -------------------------------------------------------------

    def enqueue(
        self,
        session: Session,
        queue: str,
        kind: str,
        payload: dict[str, Any],
        *,
        dedupe_key: str | None = None,
        run_at: datetime | None = None,
        max_attempts: int = 3,
    ) -> Job:
        """Add a job that exists if and only if the caller's transaction commits; workers wake up then.

        While a job with the same `dedupe_key` is queued or running, that one is returned instead. So put into the key
        everything that makes the work different, such as the commit to sync.
        """
        if dedupe_key is not None:
            existing = self.find(session, dedupe_key)
            if existing is not None:
                return existing
        job = Job(
            queue=queue,
            kind=kind,
            payload=payload,
            dedupe_key=dedupe_key,
            run_at=run_at or utc_now(),
            max_attempts=max_attempts,
        )
        session.add(job)
        session.flush()
        _after_commit(session, self.wake)
        return job

    def find(self, session: Session, dedupe_key: str) -> Job | None:
        """The queued or running job with this key; a finished one has given its key back."""
        return session.scalar(select(Job).where(Job.dedupe_key == dedupe_key))

    def request_cancel(self, session: Session, job_id: str) -> bool:
        """Cancel a queued job now, or ask the worker of a running one to stop. False when the job has already ended."""
        job = session.get(Job, job_id, with_for_update=True, populate_existing=True)
        if job is None or job.status not in LIVE:
            return False
        job.cancel_requested = True
        if job.status == "queued":
            _end(job, "cancelled")
        else:
            _after_commit(session, lambda: [notify(job_id) for notify in self._on_cancel])
        return True

    # -- Doing work ------------------------------------------------------------------------------------------------

    def claim(self, queue: str, owner: str | None = None) -> ClaimedJob | None:
        """Take the job that has waited longest, or None. Jobs whose lease ran out come first.

        The attempt may be beyond `max_attempts`: then earlier workers died, and the caller has to give the job up.
        """
        now = utc_now()
        # A look without the write lock first: idle workers must not hold up everybody's writes.
        if not self._busy.get(queue) and not self._claimable(queue, now):
            return None
        until = now + timedelta(seconds=self.lease_seconds)
        taking = {"of_queue": queue, "now": now, "owner": owner or self.owner, "until": until}
        with self.database.write() as session:
            row = None
            if self._look_for_expired(queue):
                row = session.execute(statements.TAKE_EXPIRED, taking).one_or_none()
            if row is None:
                row = session.execute(statements.TAKE_DUE, taking).one_or_none()
            if row is None:
                row = session.execute(statements.TAKE_EXPIRED, taking).one_or_none()
        self._busy[queue] = row is not None
        if row is None:
            return None
        claimed = ClaimedJob(
            id=row.id,
            queue=queue,
            kind=row.kind,
            payload=row.payload,
            attempt=row.attempts,
            max_attempts=row.max_attempts,
            fencing_token=row.fencing_token,
        )
        if row.cancel_requested:
            claimed.tell_cancelled()
        return claimed

    def _look_for_expired(self, queue: str) -> bool:
        # They go first, so that a long queue cannot starve them, but rarely: each look doubles the cost of a claim.
        now = time.monotonic()
        due = now >= self._next_look.get(queue, 0.0)
        if due:
            self._next_look[queue] = now + min(1.0, self.lease_seconds / 4)
        return due

    def guard(self, session: Session, lease: ClaimedJob) -> None:
        """Raise LeaseLost unless the lease still holds; then nobody can take the job over before this transaction ends."""
        held = session.scalar(statements.HELD, _of(lease))
        if held is None:
            raise LeaseLost(lease.id)

    def heartbeat(self, leases: list[ClaimedJob]) -> dict[str, bool]:
        """Extend leases; returns `{job id: cancel requested}` of those that still hold."""
        until = utc_now() + timedelta(seconds=self.lease_seconds)
        held: dict[str, bool] = {}
        with self.database.write() as session:
            for lease in leases:
                cancel = session.execute(statements.EXTEND, {**_of(lease), "until": until}).one_or_none()
                if cancel is not None:
                    held[lease.id] = cancel[0]
        return held

    def finish(self, session: Session, lease: ClaimedJob) -> None:
        """The work is done. Raises LeaseLost."""
        self._end(session, lease, "done", None)

    def fail(self, session: Session, lease: ClaimedJob, error: str) -> None:
        """The work cannot be done. Raises LeaseLost."""
        self._end(session, lease, "failed", error)

    def cancel(self, session: Session, lease: ClaimedJob) -> None:
        """The work was stopped on request. Raises LeaseLost."""
        self._end(session, lease, "cancelled", None)

    def retry(self, session: Session, lease: ClaimedJob, error: str, delay: float) -> None:
        """Put the job back, to be tried again after `delay` seconds. Raises LeaseLost."""
        later = utc_now() + timedelta(seconds=delay)
        _write(session, statements.RETRY, lease, why=error, later=later)

    def give_back(self, session: Session, lease: ClaimedJob) -> None:
        """Put the job back as if it had not been taken: the attempt does not count. Raises LeaseLost."""
        _write(session, statements.GIVE_BACK, lease)
        _after_commit(session, self.wake)

    def _end(self, session: Session, lease: ClaimedJob, status: str, error: str | None) -> None:
        _write(session, statements.END, lease, to_status=status, why=error, now=utc_now())

    # -- Waking and starting ---------------------------------------------------------------------------------------

    def release_leases_of_this_place(self) -> int:
        """Put back every job that an earlier process of this data folder held; returns how many.

        Only for the process that has the folder's lock: it proves that no such process is alive.
        """
        statement = (
            update(Job)
            .where(Job.status == "running", Job.lease_owner.startswith(f"{self.place}:", autoescape=True))
            .values(status="queued", lease_owner=None, lease_until=None)
        )
        with self.database.write() as session:
            return cast("CursorResult[Any]", session.execute(statement)).rowcount

    def forget_ended(self, days: int = 7) -> int:
        """Delete jobs that ended longer ago; returns how many. What they did is told by what they changed."""
        ended = (Job.status.not_in(LIVE), Job.finished_at < utc_now() - timedelta(days=days))
        with self.database.write() as session:
            return cast("CursorResult[Any]", session.execute(delete(Job).where(*ended))).rowcount

    def wake(self) -> None:
        """Let waiting workers look for jobs."""
        with self._changed:
            self._changes += 1
            self._changed.notify_all()

    @property
    def changes(self) -> int:
        """Grows whenever there may be something to claim; read it before `claim`, then give it to `wait`."""
        return self._changes

    def wait(self, seen: int, timeout: float) -> None:
        """Block until something changed since `seen`, at most `timeout` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._changes != seen, timeout)

    def on_cancel(self, notify: Callable[[str], None]) -> None:
        """Call `notify(job id)` when this process asks a running job to stop."""
        self._on_cancel.append(notify)

    def _claimable(self, queue: str, now: datetime) -> bool:
        which = {"of_queue": queue, "now": now}
        with self.database.read() as session:
            if session.scalar(statements.DUE, which) is not None:
                return True
            if session.scalar(statements.EXPIRED, which) is None:
                return False
        self._next_look[queue] = 0.0
        return True


def _of(lease: ClaimedJob) -> dict[str, Any]:
    return {"of_job": lease.id, "of_token": lease.fencing_token}


def _write(session: Session, statement: Update, lease: ClaimedJob, **values: Any) -> None:
    done = cast("CursorResult[Any]", session.execute(statement, {**_of(lease), **values}))
    if done.rowcount != 1:
        raise LeaseLost(lease.id)


def _end(job: Job, status: str) -> None:
    job.status = status
    job.dedupe_key = None
    job.finished_at = utc_now()


def _after_commit(session: Session, action: Callable[[], Any]) -> None:
    event.listen(session, "after_commit", lambda _session: action(), once=True)

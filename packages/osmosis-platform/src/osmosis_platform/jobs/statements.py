"""The statements that claim and hold jobs, built once: building them anew for each job would cost more than running them."""

from __future__ import annotations

from typing import cast

from sqlalchemy import ColumnElement, Select, Table, bindparam, select, update

from osmosis_platform.jobs.models import Job

jobs = cast(Table, Job.__table__)
column = jobs.c

_of_queue = column.queue == bindparam("of_queue")


def _first(*conditions: ColumnElement[bool]) -> Select[tuple[str]]:
    return select(column.id).where(_of_queue, *conditions).order_by(column.run_at).limit(1)


# Parameters: of_queue, now. The job that has waited longest, and the one whose worker stopped extending its lease.
DUE = _first(column.status == "queued", column.run_at <= bindparam("now"))
EXPIRED = _first(column.status == "running", column.lease_until < bindparam("now"))

_take = (
    update(jobs)
    .values(
        status="running",
        attempts=column.attempts + 1,
        fencing_token=column.fencing_token + 1,
        lease_owner=bindparam("owner"),
        lease_until=bindparam("until"),
    )
    .returning(
        column.id,
        column.kind,
        column.payload,
        column.attempts,
        column.max_attempts,
        column.fencing_token,
        column.cancel_requested,
    )
)

# Parameters: those of DUE, owner, until. One statement chooses and takes the row, on SQLite and Postgres alike.
TAKE_DUE = _take.where(column.id.in_(DUE.with_for_update(skip_locked=True)))
TAKE_EXPIRED = _take.where(column.id.in_(EXPIRED.with_for_update(skip_locked=True)))

# Parameters: of_job, of_token. Everything that a holder writes is conditional on its fencing token.
_is_held = (
    column.id == bindparam("of_job"),
    column.fencing_token == bindparam("of_token"),
    column.status == "running",
)
HELD = select(column.id).where(*_is_held).with_for_update()
EXTEND = (
    update(jobs).where(*_is_held).values(lease_until=bindparam("until")).returning(column.cancel_requested)
)
END = (
    update(jobs)
    .where(*_is_held)
    .values(
        status=bindparam("to_status"),
        error=bindparam("why"),
        finished_at=bindparam("now"),
        dedupe_key=None,
        lease_owner=None,
        lease_until=None,
    )
)
_put_back = update(jobs).where(*_is_held).values(status="queued", lease_owner=None, lease_until=None)
RETRY = _put_back.values(error=bindparam("why"), run_at=bindparam("later"))
GIVE_BACK = _put_back.values(attempts=column.attempts - 1)

"""The run API: what workers report and ask. Each call carries the token of the run."""

from __future__ import annotations

import hmac
import tempfile
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import JSONResponse
from sqlalchemy import select, tuple_
from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool

from osmosis_platform.context import Platform
from osmosis_platform.errors import InvalidInput, Unauthenticated
from osmosis_platform.http.paging import LARGEST
from osmosis_platform.http.scope import PlatformDep, bearer_token
from osmosis_platform.runs import tokens
from osmosis_platform.runs.attempt_facts import attempt_facts
from osmosis_platform.runs.blobs import store
from osmosis_platform.runs.events import apply_events
from osmosis_platform.runs.models import Run, RunAttempt
from osmosis_platform.runs.wire import Events, Redactor
from osmosis_platform.storage.store import SHA256

router = APIRouter(prefix="/api/runs/{run_id}", include_in_schema=False)

MAX_ATTEMPTS_PAGE = 1000
# Uploads above this size wait on disk instead of in memory before they are hashed into the store.
_SPOOL_BYTES = 4 * 1024**2
_RUN_INDEX_BITS = 20


def run_token(request: Request) -> str:
    """The digest of the caller's run token."""
    return tokens.digest(bearer_token(request))


TokenDigest = Annotated[str, Depends(run_token)]


def authorised(session: Session, run_id: str, digest: str) -> Run:
    """The run, if the token is its current one; raises Unauthenticated otherwise (also after the run ended)."""
    run = session.get(Run, run_id)
    if run is None or run.run_token_hash is None or not hmac.compare_digest(run.run_token_hash, digest):
        raise Unauthenticated("This is not the current token of a running run.", code="RUN_TOKEN_INVALID")
    return run


@router.post("/events")
def post_events(run_id: str, body: Events, digest: TokenDigest, platform: PlatformDep) -> dict[str, Any]:
    """Take a batch of events, all or none, and say whether the run should stop. An empty batch is a heartbeat."""
    redactor = _redactor(platform, run_id)
    events = body.events if redactor is None else [event.redacted(redactor) for event in body.events]
    with platform.database.write() as session:
        run = authorised(session, run_id, digest)
        accepted = apply_events(session, platform.blobs, run, events)
        return {"accepted": accepted, "stop_requested": run.stop_requested_at is not None}


@router.put("/blobs/{sha256}")
async def put_blob(
    run_id: str, sha256: str, digest: TokenDigest, platform: PlatformDep, request: Request
) -> JSONResponse:
    """Store a blob after checking that its bytes have the hash it is named by; storing it again changes nothing.

    Values of the run's secrets in it are masked before anything is kept.
    """
    if not SHA256.match(sha256):
        raise InvalidInput(f"{sha256[:80]!r} is no SHA-256 in lower-case hexadecimal.", field="sha256")
    await run_in_threadpool(_authorise, platform, run_id, digest)
    with tempfile.SpooledTemporaryFile(max_size=_SPOOL_BYTES, dir=str(platform.settings.data_dir)) as spool:
        async for chunk in request.stream():
            await run_in_threadpool(spool.write, chunk)
        spool.seek(0)
        await run_in_threadpool(store, platform, run_id, spool, sha256, _redactor(platform, run_id))
    return JSONResponse({"sha256": sha256}, status_code=201)


def _redactor(platform: Platform, run_id: str) -> Redactor | None:
    """What takes the secrets of an executing run out of all that comes from it."""
    return platform.supervisor.redactors.get(run_id) if platform.supervisor is not None else None


def _authorise(platform: Platform, run_id: str, digest: str) -> None:
    with platform.database.read() as session:
        authorised(session, run_id, digest)


@router.get("/attempts")
def get_attempts(
    run_id: str,
    digest: TokenDigest,
    platform: PlatformDep,
    after: Annotated[int, Query(ge=-1, le=LARGEST)] = -1,
    limit: Annotated[int, Query(ge=1, le=MAX_ATTEMPTS_PAGE)] = MAX_ATTEMPTS_PAGE,
) -> dict[str, Any]:
    """Finished attempts by row and run index; pass `next_after` back as `after` until it is null."""
    with platform.database.read() as session:
        authorised(session, run_id, digest)
        query = select(RunAttempt).where(RunAttempt.run_id == run_id)
        if after >= 0:
            position = (after >> _RUN_INDEX_BITS, after & ((1 << _RUN_INDEX_BITS) - 1))
            query = query.where(tuple_(RunAttempt.row_index, RunAttempt.run_index) > position)
        query = query.order_by(RunAttempt.row_index, RunAttempt.run_index).limit(limit + 1)
        found = list(session.scalars(query))
    page, more = found[:limit], len(found) > limit
    last = page[-1] if more else None
    return {
        "attempts": [attempt_body(attempt) for attempt in page],
        "next_after": (last.row_index << _RUN_INDEX_BITS | last.run_index) if last is not None else None,
    }


def attempt_body(attempt: RunAttempt) -> dict[str, Any]:
    """One finished attempt on the wire."""
    return {**attempt_facts(attempt), "trajectory_blob": attempt.trajectory_sha256}

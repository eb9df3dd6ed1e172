"""A submit that is sent twice makes one run: the client names the request, and the run remembers the name."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Header
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from osmosis_platform.context import Platform
from osmosis_platform.errors import Conflict
from osmosis_platform.http.scope import WorkspaceScope
from osmosis_platform.repositories.mirrors import freshen
from osmosis_platform.runs.models import Run
from osmosis_platform.runs.service import Kind

Submit = Callable[[Session, Platform, WorkspaceScope, Any], Run]

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=200,
        pattern="^[!-~]+$",
        description="A name of this request, fresh for each new run; repeating the request with it makes no second run.",
    ),
]


def submit_once(
    platform: Platform, scope: WorkspaceScope, kind: Kind, key: str | None, body: Any, submit: Submit
) -> Run:
    """The run of this request: made now, or the one that the caller's request of this key made before.

    Raises Conflict when the key came with another request, and whatever `submit` raises. Nothing of a refused request is kept,
    so it can be corrected and sent again under its key.
    """
    experiment = body.get("experiment_config") if isinstance(body, dict) else None
    freshen_code(platform, scope, experiment)
    if key is None:
        with platform.database.write() as session:
            return submit(session, platform, scope, body)
    digest = _digest(kind, body)
    try:
        return _make_or_find(platform, scope, key, digest, body, submit)
    except IntegrityError:
        # The same request is answered elsewhere at this moment: by now its run is there.
        return _make_or_find(platform, scope, key, digest, body, submit)


def freshen_code(platform: Platform, scope: WorkspaceScope, experiment: Any) -> None:
    """Look whether a connected repository has what an experiment names; before the transaction, since it may take seconds."""
    named = experiment if isinstance(experiment, dict) else {}
    freshen(platform, scope.repository, named.get("branch"), named.get("commit_sha"))


def _make_or_find(
    platform: Platform, scope: WorkspaceScope, key: str, digest: str, body: Any, submit: Submit
) -> Run:
    with platform.database.write() as session:
        known = session.scalar(
            select(Run).where(
                Run.workspace_id == scope.workspace.id,
                Run.creator_id == scope.user.id,
                Run.submit_key == key,
            )
        )
        if known is None:
            run = submit(session, platform, scope, body)
            run.submit_key, run.submit_digest = key, digest
            return run
        if known.submit_digest != digest:
            raise Conflict(
                f"The Idempotency-Key {key} belongs to another request, which made the run {known.name}. Use a fresh key.",
                code="IDEMPOTENCY_KEY_REUSED",
            )
        return known


def _digest(kind: Kind, body: Any) -> str:
    """What tells two requests apart. Secret values stay out: a digest would let somebody try guesses against it."""
    shown = body
    if isinstance(body, dict) and isinstance(body.get("secrets"), dict):
        shown = {**body, "secrets": {k: v for k, v in body["secrets"].items() if k != "provided"}}
    return hashlib.sha256(f"{kind}:{json.dumps(shown, sort_keys=True)}".encode()).hexdigest()

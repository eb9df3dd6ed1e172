"""`POST /api/git/{connection_id}/push`: a git host tells of a push to a connected repository, as GitHub's webhooks do.

The body is signed: `X-Hub-Signature-256: sha256=<HMAC-SHA256 of the body, hex>`. What it says is not read: the host is asked itself.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

import anyio.to_thread
from fastapi import APIRouter, Request

from osmosis_platform.context import Platform
from osmosis_platform.errors import PlatformError, Unauthenticated
from osmosis_platform.repositories import mirrors
from osmosis_platform.repositories.models import Repository

router = APIRouter(include_in_schema=False)
MAX_BYTES = 25 * 1024 * 1024  # GitHub sends no more


@router.post("/api/git/{connection_id}/push", status_code=202)
async def pushed(connection_id: str, request: Request) -> dict[str, Any]:
    """Queue a fetch. A delivery that comes again changes nothing."""
    platform: Platform = request.app.state.platform
    found = await anyio.to_thread.run_sync(_secret, platform, connection_id)
    digest = hmac.new((found[1] or "").encode(), digestmod=hashlib.sha256)
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > MAX_BYTES:
            raise PlatformError("The body of this delivery is too large.", code="BODY_TOO_LARGE", status=413)
        digest.update(chunk)
    given = request.headers.get("x-hub-signature-256", "")
    if found[1] is None or not hmac.compare_digest(f"sha256={digest.hexdigest()}".encode(), given.encode()):
        raise Unauthenticated(
            "The signature of this delivery is wrong: give the webhook the secret that the platform showed.",
            code="SIGNATURE_INVALID",
        )
    if request.headers.get("x-github-event", "push") not in ("push", "create", "delete"):
        return {"status": "ignored"}
    delivery = request.headers.get("x-github-delivery", "")[:100]
    await anyio.to_thread.run_sync(_request, platform, found[0], delivery)
    platform.jobs.wake()
    return {"status": "queued"}


def _secret(platform: Platform, connection_id: str) -> tuple[str, str | None]:
    with platform.database.read() as session:
        return mirrors.webhook_secret(session, platform.keys, connection_id)


def _request(platform: Platform, repository_id: str, delivery: str) -> None:
    with platform.database.write() as session:
        repository = session.get(Repository, repository_id)
        if repository is not None and repository.kind == "mirror":
            mirrors.request_fetch(session, platform, repository, key=delivery)

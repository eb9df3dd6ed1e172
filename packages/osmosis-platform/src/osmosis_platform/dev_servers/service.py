"""Rules of development servers: what can be started, who may have how many, what is shown of them."""

from __future__ import annotations

import hmac
from datetime import timedelta
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from osmosis_platform.accounts.tokens import hash_token, new_token
from osmosis_platform.audit.service import record
from osmosis_platform.context import Platform
from osmosis_platform.db.types import utc_now
from osmosis_platform.dev_servers.models import LIVE, DevServer
from osmosis_platform.errors import Conflict, NotFound
from osmosis_platform.http.paging import Page, page_of
from osmosis_platform.http.scope import WorkspaceScope
from osmosis_platform.repositories.service import repository_of, resolve_commit
from osmosis_platform.runs.service import log

QUEUE = "dev-servers"
RUN = "dev_servers.run"
KEY_PREFIX = "osd_"
# It outlives restarts of the platform; a start that keeps failing is given up by the executor itself.
_JOB_ATTEMPTS = 1000


def start(
    session: Session,
    platform: Platform,
    scope: WorkspaceScope,
    *,
    rollout_name: str,
    repository_path: str,
    entrypoint: str,
    commit_sha: str,
    ttl_hours: int | None,
) -> tuple[DevServer, str]:
    """A server that will be started, and the key that its callers show, which is never seen again.

    Raises Conflict without repository or when the workspace has as many servers as it may, NotFound for code that was not pushed.
    """
    repository = repository_of(session, scope.workspace.id)
    commit, _ = resolve_commit(platform, repository, branch=None, commit_sha=commit_sha)
    path = f"{repository_path}/{entrypoint}"
    if platform.git.read_text(repository.full_name, commit, path, limit=1) is None:
        raise NotFound(
            f"Entrypoint not found: {path} is not in commit {commit[:8]} of {repository.full_name}. Push it first.",
            code="ENTRYPOINT_NOT_FOUND",
            field="entrypoint",
        )
    allowed = platform.settings.dev_server_slots
    mine = (DevServer.workspace_id == scope.workspace.id, DevServer.status.in_(LIVE))
    if (session.scalar(select(func.count()).select_from(DevServer).where(*mine)) or 0) >= allowed:
        raise Conflict(
            f"All {allowed} development servers of this workspace are in use. Stop one first: osmosis dev server down <id>",
            code="DEV_SERVER_QUOTA_REACHED",
        )
    key = new_token(KEY_PREFIX)
    server = DevServer(
        workspace_id=scope.workspace.id,
        creator_id=scope.user.id,
        rollout_name=rollout_name,
        repository_path=repository_path,
        entrypoint=entrypoint,
        commit_sha=commit,
        key_hash=hash_token(key),
        expires_at=utc_now() + timedelta(hours=ttl_hours) if ttl_hours is not None else None,
    )
    session.add(server)
    session.flush()
    log(session, server.id, f"Starting {path} at commit {commit[:8]}.", step="runner")
    record(session, "dev_server.start", rollout_name, user_id=scope.user.id, workspace_id=scope.workspace.id)
    platform.jobs.enqueue(
        session, QUEUE, RUN, {"server_id": server.id}, dedupe_key=job_key(server), max_attempts=_JOB_ATTEMPTS
    )
    return server, key


def stop(session: Session, platform: Platform, scope: WorkspaceScope, server: DevServer) -> None:
    """End a server; one that has ended stays as it is."""
    if server.status not in LIVE:
        return
    end(session, server, "stopped")
    record(
        session,
        "dev_server.stop",
        server.rollout_name,
        user_id=scope.user.id,
        workspace_id=scope.workspace.id,
    )
    job = platform.jobs.find(session, job_key(server))
    if job is not None:
        platform.jobs.request_cancel(session, job.id)


def end(session: Session, server: DevServer, status: str, error: str | None = None) -> None:
    """Note that a server is over and why."""
    server.status, server.error = status, error
    server.port, server.ended_at = None, utc_now()
    text = f"The server {status}." if error is None else f"The server {status}: {error}"
    log(session, server.id, text, level="info" if error is None else "error", step="runner")


def find(session: Session, workspace_id: str, server_id: str) -> DevServer:
    """The server in the workspace, ended or not; raises NotFound."""
    server = session.get(DevServer, server_id)
    if server is None or server.workspace_id != workspace_id:
        raise NotFound(f"Development server not found: {server_id}", code="DEV_SERVER_NOT_FOUND")
    return server


def page(session: Session, workspace_id: str, window: Page) -> tuple[list[DevServer], int]:
    """A page of the servers that have not ended, newest first, and how many there are."""
    query = (
        select(DevServer)
        .where(DevServer.workspace_id == workspace_id, DevServer.status.in_(LIVE))
        .order_by(DevServer.created_at.desc(), DevServer.id)
    )
    return page_of(session, query, window)


def opens(server: DevServer, credential: str) -> bool:
    """Whether this is the server's own key."""
    return hmac.compare_digest(server.key_hash, hash_token(credential))


def body(platform: Platform, server: DevServer) -> dict[str, Any]:
    """A server on the wire."""
    moments = {
        name: None if moment is None else moment.isoformat()
        for name, moment in (
            ("created_at", server.created_at),
            ("started_at", server.started_at),
            ("expires_at", server.expires_at),
        )
    }
    return {
        "id": server.id,
        "name": server.rollout_name,
        "url": f"{platform.settings.resolved_public_url}/dev-servers/{server.id}",
        "status": server.status,
        "error": server.error,
        "commit_sha": server.commit_sha,
        **moments,
    }


def job_key(server: DevServer) -> str:
    """The dedupe key of the job that runs the server."""
    return f"dev-server:{server.id}"

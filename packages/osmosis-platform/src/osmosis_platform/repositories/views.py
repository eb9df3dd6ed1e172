"""The page Git Integration: the workspace's repository, how to clone it and sign in, and what each push brought."""

from __future__ import annotations

import re
from typing import Annotated, Any

from fastapi import APIRouter, Form, Query, Request, Response
from fastapi.responses import RedirectResponse
from sqlalchemy import select
from sqlalchemy.orm import Session

from osmosis_ai.templates import write_workspace
from osmosis_platform.audit.service import record
from osmosis_platform.context import Platform
from osmosis_platform.errors import Conflict, InvalidInput, NotFound
from osmosis_platform.http.paging import Offset, page_of
from osmosis_platform.http.scope import PlatformDep
from osmosis_platform.repositories import mirrors, service
from osmosis_platform.repositories.models import Connection, Repository, SyncEvent
from osmosis_platform.web.addresses import query_of
from osmosis_platform.web.pages import render
from osmosis_platform.web.viewer import Csrf, Viewer, ViewerDep, page_at
from osmosis_platform.workspaces.models import Workspace

router = APIRouter(include_in_schema=False)
STATUSES = ("pending", "syncing", "success", "failed")
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


@router.get("/{workspace}/git")
def git_page(
    request: Request,
    platform: PlatformDep,
    viewer: ViewerDep,
    offset: Offset = 0,
    branch: Annotated[str, Query(max_length=300)] = "",
    status: Annotated[str, Query(max_length=40)] = "",
) -> Response:
    """The repository and its syncs, newest first; `branch` and `status` choose among them."""
    return show(request, platform, viewer, offset=offset, branch=branch, status=status)


def show(
    request: Request,
    platform: Platform,
    viewer: Viewer,
    *,
    offset: int = 0,
    branch: str = "",
    status: str = "",
    secret: str | None = None,
    error: str | None = None,
    typed: str = "",
    answer: int = 200,
) -> Response:
    """The page, answered with the status `answer`; `secret` is a new one of the webhook, `typed` a refused address."""
    page = page_at(offset)
    with platform.database.read() as session:
        repository = _repository(session, viewer)
        syncs, total = page_of(session, _query(repository, branch, status), page)
        branches = session.scalars(
            _query(repository, "", "").with_only_columns(SyncEvent.branch).order_by(None).distinct()
        )
        data: dict[str, Any] = {
            "repository": None
            if repository is None
            else _facts(
                platform.settings.resolved_public_url, repository, mirrors.connection_of(session, repository)
            ),
            "secret": secret,
            "error": error,
            "syncs": [sync_row(event) for event in syncs],
            "page": {"limit": page.limit, "offset": page.offset, "total": total},
            "filter": {
                "branch": branch,
                "status": status,
                "query": query_of({"branch": branch, "status": status}),
            },
            "choices": {"branch": sorted(branches), "status": list(STATUSES)},
        }
    path = f"/{viewer.workspace}/git"
    return render(request, "git.html", data, status=answer, viewer=viewer, room="git", path=path, typed=typed)


@router.post("/{workspace}/git/repository", dependencies=[Csrf])
def create_repository(
    platform: PlatformDep, viewer: ViewerDep, name: Annotated[str, Form()] = ""
) -> Response:
    """Create the workspace's repository from the workspace template."""
    viewer.require_role("admin", "create its repository")
    if not _NAME.fullmatch(name.strip()) or name.strip().endswith((".git", ".")):
        raise InvalidInput(
            "A repository's name has small letters, digits, dots, dashes and underscores, at most 63, and starts with a letter or digit.",
            field="name",
        )
    with platform.database.write() as session:
        workspace = session.get_one(Workspace, viewer.workspace_id, with_for_update=True)
        if service.is_taken(session, f"{workspace.name}/{name.strip()}"):
            raise Conflict(
                f"There is a repository {workspace.name}/{name.strip()} already.", code="NAME_TAKEN"
            )
        service.create_repository(
            session, platform, workspace, name.strip(), author=viewer.user, write_tree=write_workspace
        )
        record(session, "repository.create", name.strip(), user_id=viewer.user.id, workspace_id=workspace.id)
    return back(viewer)


@router.post("/{workspace}/git/sync", dependencies=[Csrf])
def sync_all(platform: PlatformDep, viewer: ViewerDep) -> Response:
    """Read every branch anew, without a push; of a connected repository after it was fetched."""
    with platform.database.write() as session:
        repository = service.repository_of(session, viewer.workspace_id)
        if repository.kind == "mirror":
            mirrors.request_fetch(session, platform, repository, shown=True)
        else:
            for branch in sorted(platform.git.branches(repository.full_name)):
                service.enqueue_sync(session, platform, repository, branch)
        record(
            session,
            "repository.sync",
            repository.full_name,
            user_id=viewer.user.id,
            workspace_id=viewer.workspace_id,
        )
    return back(viewer)


@router.post("/{workspace}/git/syncs/{sync_id}/retry", dependencies=[Csrf])
def retry_sync(platform: PlatformDep, viewer: ViewerDep, sync_id: str) -> Response:
    """Read the branch of a failed sync once more."""
    with platform.database.write() as session:
        repository = service.repository_of(session, viewer.workspace_id)
        failed = session.get(SyncEvent, sync_id)
        if failed is None or failed.repository_id != repository.id:
            raise NotFound(f"There is no sync with the id {sync_id}.", code="SYNC_NOT_FOUND")
        if failed.status != "failed":
            raise Conflict(
                f"This sync is {failed.status}; only a failed one is tried again.", code="SYNC_NOT_FAILED"
            )
        if failed.branch == mirrors.EVERY_BRANCH and repository.kind == "mirror":
            mirrors.request_fetch(session, platform, repository, shown=True)
        else:
            service.enqueue_sync(session, platform, repository, failed.branch)
    return back(viewer)


def sync_row(event: SyncEvent) -> dict[str, Any]:
    """What a push brought, for lists."""
    return {
        "id": event.id,
        "branch": event.branch,
        "status": event.status,
        "commit_sha": event.commit_sha,
        "author": event.author,
        "message": event.message,
        "error": event.error,
        "rollouts_found": event.rollouts_found,
        "created_at": event.created_at.isoformat(),
    }


def _repository(session: Session, viewer: Viewer) -> Repository | None:
    return session.scalar(select(Repository).where(Repository.workspace_id == viewer.workspace_id))


def _query(repository: Repository | None, branch: str, status: str) -> Any:
    query = select(SyncEvent).where(SyncEvent.repository_id == (repository.id if repository else ""))
    if branch:
        query = query.where(SyncEvent.branch == branch)
    if status:
        query = query.where(SyncEvent.status == status)
    return query.order_by(SyncEvent.created_at.desc(), SyncEvent.id)


def _facts(url: str, repository: Repository, connection: Connection | None) -> dict[str, Any]:
    return {
        "full_name": repository.full_name,
        "default_branch": repository.default_branch,
        "folder": repository.full_name.rpartition("/")[2],
        "clone_url": service.clone_url(url, repository),
        "platform_url": url,
        "connection": None
        if connection is None
        else {
            "url": repository.remote_url,
            "token_hint": connection.token_hint,
            "secret_hint": connection.secret_hint,
            "webhook_url": f"{url}/api/git/{connection.id}/push",
            "fetched_at": connection.fetched_at.isoformat() if connection.fetched_at else None,
            "error": connection.error,
            "returns_to": connection.builtin_name,
        },
    }


def back(viewer: Viewer) -> Response:
    """To the page, after a form."""
    return RedirectResponse(f"/{viewer.workspace}/git", status_code=303)

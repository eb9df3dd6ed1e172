"""Repositories and their sync: pushes become sync events, sync events become the rollouts catalogue."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from sqlalchemy import delete, func, or_, select
from sqlalchemy.orm import Session

from osmosis_platform.accounts.models import User
from osmosis_platform.db.types import utc_now
from osmosis_platform.errors import Conflict, InvalidInput, NotFound, PlatformError
from osmosis_platform.repositories.git import GitHost
from osmosis_platform.repositories.models import Connection, Repository, SyncEvent
from osmosis_platform.rollouts.models import Rollout
from osmosis_platform.workspaces.models import Membership, Workspace

if TYPE_CHECKING:
    from osmosis_platform.context import Platform

SYNC_JOB = "repositories.sync"


@dataclass(frozen=True, slots=True)
class GitAccess:
    """A person's access to one repository; `pushes_to` is where pushes go when not here."""

    repository_id: str
    full_name: str
    user_email: str
    pushes_to: str | None = None


def git_access(session: Session, user: User, full_name: str) -> GitAccess | None:
    """The access of a member of the repository's workspace, or None: outsiders cannot tell whether it exists.

    A built-in repository that waits behind a connected one is found too.
    """
    name = full_name.lower()
    row = session.execute(
        select(Repository, Connection.builtin_name)
        .join(Membership, Membership.workspace_id == Repository.workspace_id)
        .outerjoin(Connection, Connection.repository_id == Repository.id)
        .where(
            Membership.user_id == user.id,
            or_(Repository.identity == name, func.lower(Connection.builtin_name) == name),
        )
        .order_by((Repository.identity == name).desc())
        .limit(1)
    ).one_or_none()
    if row is None:
        return None
    repository, waiting = row
    found = waiting if waiting and repository.identity != name else repository.full_name
    return GitAccess(repository.id, found, user.email, repository.remote_url)


def repository_of(session: Session, workspace_id: str) -> Repository:
    """The workspace's repository. Raises Conflict when none is connected."""
    repository = session.scalar(select(Repository).where(Repository.workspace_id == workspace_id))
    if repository is None:
        raise Conflict(
            "this workspace has no repository: create or connect one under Git Integration",
            code="REPOSITORY_REQUIRED",
        )
    return repository


def create_repository(
    session: Session,
    platform: Platform,
    workspace: Workspace,
    name: str,
    *,
    author: User,
    write_tree: Callable[[Path], object] | None = None,
) -> Repository:
    """Create the workspace's repository `<workspace>/<name>` on the built-in host.

    `write_tree(folder)` fills the first commit (the workspace template, usually). Raises Conflict when there is one already.
    """
    if session.scalar(select(Repository.id).where(Repository.workspace_id == workspace.id)):
        raise Conflict(f"workspace {workspace.name} has a repository already")
    full_name = f"{workspace.name}/{name}"
    remove_unowned(session, platform, full_name)
    platform.git.create(full_name)
    repository = Repository(workspace_id=workspace.id, full_name=full_name, identity=full_name.lower())
    session.add(repository)
    session.flush()
    if write_tree is not None:
        try:
            _first_commit(platform.git, full_name, author, write_tree)
        except BaseException:
            platform.git.remove(full_name)  # the transaction takes the rest back
            raise
        enqueue_sync(session, platform, repository, repository.default_branch)
    return repository


def remove_unowned(session: Session, platform: Platform, full_name: str) -> None:
    """Take away a built-in repository that no row owns: its workspace was deleted, or a crash came before the row did.

    Call it in a transaction that may write: it keeps others from making one of the same name meanwhile.
    """
    if not is_taken(session, full_name):
        platform.git.remove(full_name)


def is_taken(session: Session, full_name: str) -> bool:
    """Whether a workspace has a repository of this name (in any case), be it one that waits behind a connected one."""
    name = full_name.lower()
    waiting = select(Connection.id).where(func.lower(Connection.builtin_name) == name).limit(1)
    owned = select(Repository.id).where(Repository.identity == name).limit(1)
    return session.scalar(owned) is not None or session.scalar(waiting) is not None


def clone_url(public_url: str, repository: Repository) -> str:
    """Where members clone from so that the command line knows the workspace: GitHub, else this platform, mirrors included."""
    elsewhere = repository.remote_url or ""
    on_github = urlsplit(elsewhere).hostname == "github.com"
    return elsewhere if on_github else f"{public_url}/git/{repository.full_name}.git"


def _first_commit(git: GitHost, full_name: str, author: User, write_tree: Callable[[Path], object]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        tree.mkdir()
        write_tree(tree)
        git.commit_tree(
            full_name,
            tree,
            branch="main",
            message="Start from the workspace template",
            author=author.name,
            email=author.email,
        )


def enqueue_sync(session: Session, platform: Platform, repository: Repository, branch: str) -> SyncEvent:
    """Record a pending sync of a branch and its job, in the caller's transaction."""
    sync = SyncEvent(repository_id=repository.id, branch=branch)
    session.add(sync)
    session.flush()
    platform.jobs.enqueue(session, "light", SYNC_JOB, {"sync_id": sync.id}, dedupe_key=f"sync:{sync.id}")
    return sync


def record_push(platform: Platform, access: GitAccess, before: dict[str, str]) -> None:
    """Compare branches before and after a push and queue a sync for each that changed."""
    after = platform.git.branches(access.full_name)
    changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    if not changed:
        return
    with platform.database.write() as session:
        repository = session.get_one(Repository, access.repository_id)
        for branch in changed:
            enqueue_sync(session, platform, repository, branch)


def sync_branch(platform: Platform, sync_id: str) -> None:
    """Job: bring the catalogue of one branch to the branch's head. Running it twice changes nothing."""
    with platform.database.write() as session:
        sync = session.get(SyncEvent, sync_id)
        if sync is None:  # its repository was disconnected meanwhile
            return
        repository = session.get_one(Repository, sync.repository_id)
        sync.status = "syncing"
        full_name, branch = repository.full_name, sync.branch
    try:
        head = platform.git.branches(full_name).get(branch)
        found = _read_catalogue(platform.git, full_name, head) if head else []
        commit = platform.git.commit(full_name, head) if head else None
    except PlatformError as error:
        with platform.database.write() as session:
            if (sync := session.get(SyncEvent, sync_id)) is not None:
                sync.status, sync.error, sync.finished_at = "failed", error.message, utc_now()
        return
    with platform.database.write() as session:
        sync = session.get(SyncEvent, sync_id)
        if sync is None:
            return
        repository = session.get_one(Repository, sync.repository_id)
        if repository.full_name == full_name:  # else another repository took its place meanwhile
            _store_catalogue(session, repository, branch, head, found)
        sync.status, sync.rollouts_found, sync.finished_at = "success", len(found), utc_now()
        if commit:
            sync.commit_sha, sync.author, sync.message = commit.sha, commit.author, commit.subject


@dataclass(frozen=True, slots=True)
class FoundRollout:
    """A folder below `rollouts/`."""

    name: str
    description: str | None
    readme: str | None


def _read_catalogue(git: GitHost, full_name: str, sha: str) -> list[FoundRollout]:
    found = []
    for name in git.list_folders(full_name, sha, "rollouts"):
        folder = f"rollouts/{name}"
        found.append(
            FoundRollout(
                name,
                _description(git.read_text(full_name, sha, f"{folder}/pyproject.toml")),
                git.read_text(full_name, sha, f"{folder}/README.md"),
            )
        )
    return found


def _description(pyproject: str | None) -> str | None:
    try:
        text = tomllib.loads(pyproject or "").get("project", {}).get("description")
    except (tomllib.TOMLDecodeError, AttributeError):
        return None  # a broken pyproject is told when a run needs it
    return text if isinstance(text, str) else None


def _store_catalogue(
    session: Session, repository: Repository, branch: str, sha: str | None, found: list[FoundRollout]
) -> None:
    known = {
        r.name: r
        for r in session.scalars(
            select(Rollout).where(Rollout.workspace_id == repository.workspace_id, Rollout.branch == branch)
        )
    }
    gone = [r.id for name, r in known.items() if sha is None or name not in {f.name for f in found}]
    if gone:
        session.execute(delete(Rollout).where(Rollout.id.in_(gone)))
    for item in found:
        assert sha is not None
        rollout = known.get(item.name)
        if rollout is None:
            rollout = Rollout(
                workspace_id=repository.workspace_id,
                repository_id=repository.id,
                name=item.name,
                branch=branch,
            )
            session.add(rollout)
        rollout.commit_sha, rollout.last_synced_at = sha, utc_now()
        rollout.description, rollout.readme = item.description, item.readme


def resolve_commit(
    platform: Platform, repository: Repository, *, branch: str | None, commit_sha: str | None
) -> tuple[str, str | None]:
    """(full SHA, branch or None) of what a run is to execute; resolved once, at submit.

    Neither given means the head of the default branch. Raises NotFound when the branch or commit has not been pushed.
    """
    if branch and commit_sha:
        raise InvalidInput("Provide either branch or commit_sha, not both", field="experiment")
    if commit_sha:
        return platform.git.commit(repository.full_name, commit_sha).sha, None
    name = branch or repository.default_branch
    head = platform.git.branches(repository.full_name).get(name)
    if head is None:
        raise NotFound(f"branch {name} was not found in repository {repository.full_name}: push it first")
    return head, name

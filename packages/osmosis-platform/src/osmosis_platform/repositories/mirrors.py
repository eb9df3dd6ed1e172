"""Connected repositories: a mirror here of a repository on another host, fetched when it changed there.

Whatever reads the workspace's code reads the mirror, exactly as it reads a built-in repository.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from osmosis_platform.accounts.models import User
from osmosis_platform.accounts.tokens import hint_of, new_token
from osmosis_platform.audit.service import record
from osmosis_platform.db.types import utc_now
from osmosis_platform.errors import Conflict, NotFound, PlatformError
from osmosis_platform.repositories import remote
from osmosis_platform.repositories.models import Connection, Repository, SyncEvent
from osmosis_platform.repositories.remote import Origin
from osmosis_platform.repositories.service import enqueue_sync, is_taken, remove_unowned, repository_of
from osmosis_platform.rollouts.models import Rollout
from osmosis_platform.runs.models import TERMINAL, Run
from osmosis_platform.secrets.keys import KeyRing, Sealed
from osmosis_platform.workspaces.models import Workspace

if TYPE_CHECKING:
    from osmosis_platform.context import Platform

log = logging.getLogger("osmosis_platform.repositories")

QUEUE = "fetches"
FETCH_JOB = "repositories.fetch"
# The branch of a sync event that is about the whole repository; no branch can have this name.
EVERY_BRANCH = "*"
CHECK_SECONDS = 20.0
FETCH_SECONDS = 300.0
SUBMIT_SECONDS = 15.0
# A submit fetches first when the last fetch began longer ago; for a commit that is not here, when it was not just now.
FRESH = timedelta(seconds=15)
JUST_NOW = timedelta(seconds=2)
_PURPOSE = "repositories"


def connection_of(session: Session, repository: Repository | None) -> Connection | None:
    """How a mirror reaches its origin; None for a built-in repository."""
    if repository is None or repository.kind != "mirror":
        return None
    return session.scalar(select(Connection).where(Connection.repository_id == repository.id))


def check_origin(platform: Platform, url: str, token: str) -> tuple[Origin, str]:
    """The repository at an address and its default branch, asked from its host. Not in a transaction: it may take seconds.

    Raises InvalidInput, or RemoteError when the host refuses.
    """
    anywhere = platform.settings.webhooks_anywhere
    origin = remote.origin_of(url, token.strip() or None, anywhere=anywhere)
    return origin, remote.default_branch(origin, anywhere=anywhere, seconds=CHECK_SECONDS) or "main"


def connect(
    session: Session, platform: Platform, workspace: Workspace, origin: Origin, branch: str, *, by: User
) -> Repository:
    """Make the workspace's repository a mirror of `origin`, and queue its first fetch.

    A built-in repository stays beside it, and `disconnect` returns to it. Raises Conflict when the workspace is connected
    already, or another one has a repository of this identity.
    """
    identity = origin.full_name.lower()
    repository = session.scalar(select(Repository).where(Repository.workspace_id == workspace.id))
    if repository is not None and repository.kind == "mirror":
        raise Conflict(
            f"The workspace is connected to {repository.full_name} already. Disconnect it first.",
            code="REPOSITORY_CONNECTED",
        )
    waiting = _set_aside(session, platform, repository, identity)
    try:
        remove_unowned(session, platform, origin.full_name)
        platform.git.create(origin.full_name, default_branch=branch)
        if waiting is not None:
            platform.git.keep_commits(origin.full_name, of=waiting)
        if repository is None:
            repository = Repository(workspace_id=workspace.id, full_name=origin.full_name, identity=identity)
            session.add(repository)
        _point(repository, origin.full_name, "mirror", branch, origin.url)
        session.flush()
        connection = Connection(repository_id=repository.id, builtin_name=waiting)
        _seal(connection, platform.keys, {"token": origin.token})
        session.add(connection)
        session.execute(delete(Rollout).where(Rollout.workspace_id == workspace.id))
        request_fetch(session, platform, repository, shown=True)
        _audit(session, repository, "connect", by)
        session.flush()
    except BaseException:
        # The transaction takes the rest back.
        platform.git.remove(origin.full_name)
        if repository is not None and waiting is not None and waiting.lower() == f"{identity}-builtin":
            platform.git.move(waiting, origin.full_name)
        raise
    return repository


def disconnect(session: Session, platform: Platform, workspace_id: str, *, by: User) -> str:
    """Return to the built-in repository, or to none where there was none; returns the name of the mirror, to be removed.

    Raises Conflict when nothing is connected, or when runs that are not over would be left without their code.
    """
    repository, connection = _connected(session, workspace_id)
    mirror, earlier = repository.full_name, connection.builtin_name
    _audit(session, repository, "disconnect", by)
    session.delete(connection)
    session.execute(delete(Rollout).where(Rollout.workspace_id == workspace_id))
    if earlier is None:
        waiting = select(Run.id).where(Run.workspace_id == workspace_id, Run.status.not_in(TERMINAL)).limit(1)
        if session.scalar(waiting):
            raise Conflict(
                "Runs that are not over still need this repository: stop them or wait for them, then disconnect.",
                code="REPOSITORY_BUSY",
            )
        session.execute(delete(SyncEvent).where(SyncEvent.repository_id == repository.id))
        session.flush()
        session.delete(repository)
        return mirror
    platform.git.keep_commits(earlier, of=mirror)
    _point(repository, earlier, "builtin", "main", None)
    for branch in sorted(platform.git.branches(earlier)):
        enqueue_sync(session, platform, repository, branch)
    return mirror


def set_token(session: Session, platform: Platform, workspace_id: str, origin: Origin, *, by: User) -> None:
    """Put another access token, or none, in place of the old one, and fetch with it."""
    repository, connection = _connected(session, workspace_id)
    _seal(connection, platform.keys, {**_secrets(connection, platform.keys), "token": origin.token})
    request_fetch(session, platform, repository, shown=True)
    _audit(session, repository, "token", by)


def new_secret(session: Session, platform: Platform, workspace_id: str, *, by: User) -> str:
    """A new secret for the host's push webhook, never seen again; the old one signs nothing any more."""
    repository, connection = _connected(session, workspace_id)
    secret = new_token("osh_")
    _seal(connection, platform.keys, {**_secrets(connection, platform.keys), "secret": secret})
    _audit(session, repository, "secret", by)
    return secret


def webhook_secret(session: Session, keys: KeyRing, connection_id: str) -> tuple[str, str | None]:
    """(repository id, secret) of a connection; raises NotFound."""
    connection = session.get(Connection, connection_id)
    if connection is None:
        raise NotFound(
            "There is no connected repository with this webhook address.", code="CONNECTION_NOT_FOUND"
        )
    return connection.repository_id, _secrets(connection, keys).get("secret")


def origin_in(session: Session, platform: Platform, workspace_id: str, token: str | None = None) -> Origin:
    """The connected repository, with its own token or another one. Raises Conflict when none is connected."""
    repository, connection = _connected(session, workspace_id)
    own = _secrets(connection, platform.keys).get("token") if token is None else token
    return remote.origin_of(repository.remote_url or "", own, anywhere=platform.settings.webhooks_anywhere)


def request_fetch(
    session: Session, platform: Platform, repository: Repository, *, shown: bool = False, key: str = ""
) -> None:
    """Queue a fetch; `shown` puts it into the sync history, and reads every branch anew. One of the same `key` waits once."""
    payload: dict[str, Any] = {"repository_id": repository.id, "wanted_at": utc_now().isoformat()}
    if shown:
        event = SyncEvent(repository_id=repository.id, branch=EVERY_BRANCH)
        session.add(event)
        session.flush()
        payload["sync_id"] = key = event.id
    platform.jobs.enqueue(session, QUEUE, FETCH_JOB, payload, dedupe_key=f"fetch:{repository.id}:{key}")


def fetch(
    platform: Platform,
    repository_id: str,
    *,
    seconds: float,
    sync_id: str | None = None,
    wanted_at: datetime | None = None,
) -> None:
    """Bring the mirror to its origin and queue a sync of each branch that changed; a failure goes into the history.

    `sync_id` is the event that asked for it: then every branch is read anew. With `wanted_at` a fetch that began later is enough.
    Raises Conflict when the event's turn does not come.
    """
    with platform.database.read() as session:
        repository = session.get(Repository, repository_id)
        if repository is None or connection_of(session, repository) is None:
            return
    lock = platform.git.fetching(repository.full_name)
    if not lock.acquire(timeout=seconds):
        if sync_id is not None:
            raise Conflict(f"Another fetch of {repository.full_name} takes long: try again later.")
        return
    try:
        _fetch(platform, repository, seconds, sync_id, wanted_at)
    finally:
        lock.release()


def freshen(platform: Platform, repository: Repository | None, branch: Any, commit_sha: Any) -> None:
    """Before a submit: fetch when what it names is not here, or the last fetch is some seconds old. Never raises for the host."""
    if repository is None or repository.kind != "mirror":
        return
    with platform.database.read() as session:
        connection = connection_of(session, repository)
    if connection is None:
        return
    here = _has(platform, repository, branch, commit_sha)
    age = utc_now() - connection.tried_at if connection.tried_at else timedelta.max
    if (here and commit_sha) or age < (FRESH if here else JUST_NOW):
        return
    fetch(platform, repository.id, seconds=SUBMIT_SECONDS, wanted_at=utc_now())


def reencrypt(session: Session, keys: KeyRing) -> int:
    """Encrypt every token and secret with the current master key; returns how many connections."""
    found = list(session.scalars(select(Connection)))
    for connection in found:
        _seal(connection, keys, _secrets(connection, keys))
    return len(found)


def _fetch(
    platform: Platform,
    repository: Repository,
    seconds: float,
    sync_id: str | None,
    wanted_at: datetime | None,
) -> None:
    began = utc_now()
    with platform.database.write() as session:
        connection = connection_of(session, session.get(Repository, repository.id))
        if connection is None:
            return
        if sync_id is None and wanted_at and connection.fetched_at and connection.fetched_at > wanted_at:
            return
        connection.tried_at = began
        if sync_id is not None and (event := session.get(SyncEvent, sync_id)) is not None:
            event.status = "syncing"
        origin_id = connection.id
    try:
        with platform.database.read() as session:
            origin = origin_in(session, platform, repository.workspace_id)
        anywhere = platform.settings.webhooks_anywhere
        path = platform.git.path(origin.full_name)
        branch = repository.default_branch
        if not path.is_dir():  # as after a restore without it
            platform.git.create(origin.full_name, default_branch=branch)
        if sync_id is not None:
            branch = remote.default_branch(origin, anywhere=anywhere, seconds=CHECK_SECONDS) or branch
        remote.fetch(path, origin, anywhere=anywhere, seconds=seconds)
        heads = platform.git.branches(origin.full_name)
        remote.set_head(path, branch)
    except PlatformError as error:
        _note_failure(platform, origin_id, sync_id, error.message)
        return
    with platform.database.write() as session:
        connection = session.get(Connection, origin_id)
        if connection is None:  # it was disconnected meanwhile
            return
        kept = session.get_one(Repository, connection.repository_id)
        known = connection.heads
        for name in sorted(heads.keys() | known.keys()):
            if sync_id is not None or known.get(name) != heads.get(name):
                enqueue_sync(session, platform, kept, name)
        connection.heads, connection.fetched_at, connection.error = heads, began, None
        kept.default_branch = branch
        if sync_id is not None and (event := session.get(SyncEvent, sync_id)) is not None:
            event.status, event.finished_at = "success", utc_now()
            event.message = (
                f"Fetched {len(heads)} branch{'' if len(heads) == 1 else 'es'} of {origin.full_name}"
            )


def _note_failure(platform: Platform, connection_id: str, sync_id: str | None, reason: str) -> None:
    with platform.database.write() as session:
        connection = session.get(Connection, connection_id)
        if connection is None:
            return
        repeated, connection.error = connection.error == reason, reason
        event = session.get(SyncEvent, sync_id) if sync_id is not None else None
        if event is None and repeated:  # the history says so already
            return
        event = event or SyncEvent(repository_id=connection.repository_id, branch=EVERY_BRANCH)
        event.status, event.error, event.finished_at = "failed", reason, utc_now()
        session.add(event)


def _has(platform: Platform, repository: Repository, branch: Any, commit_sha: Any) -> bool:
    try:
        if isinstance(commit_sha, str) and commit_sha:
            platform.git.commit(repository.full_name, commit_sha)
            return True
        name = branch if isinstance(branch, str) and branch else repository.default_branch
        return name in platform.git.branches(repository.full_name)
    except PlatformError:
        return False


def _set_aside(session: Session, platform: Platform, earlier: Repository | None, identity: str) -> str | None:
    """The name under which the built-in repository waits; it makes room where it has the very name of the connected one."""
    if earlier is None or earlier.identity != identity:
        if is_taken(session, identity):
            raise Conflict(
                f"The repository {identity} belongs to a workspace already. Ask its owner to disconnect it, or to invite you.",
                code="REPOSITORY_TAKEN",
                field="url",
            )
        return None if earlier is None else earlier.full_name
    aside = f"{earlier.full_name}-builtin"
    remove_unowned(session, platform, aside)
    platform.git.move(earlier.full_name, aside)
    return aside


def _connected(session: Session, workspace_id: str) -> tuple[Repository, Connection]:
    repository = repository_of(session, workspace_id)
    connection = connection_of(session, repository)
    if connection is None:
        raise Conflict(
            f"{repository.full_name} is on this platform's own git host: no other repository is connected.",
            code="REPOSITORY_NOT_CONNECTED",
        )
    return repository, connection


def _point(repository: Repository, full_name: str, kind: str, branch: str, url: str | None) -> None:
    repository.full_name, repository.identity = full_name, full_name.lower()
    repository.kind, repository.default_branch, repository.remote_url = kind, branch, url


def _secrets(connection: Connection, keys: KeyRing) -> dict[str, str | None]:
    sealed = Sealed(connection.key_id, connection.nonce, connection.ciphertext)
    opened: dict[str, str | None] = json.loads(keys.unseal(sealed, _bound_to(connection), _PURPOSE))
    return opened


def _seal(connection: Connection, keys: KeyRing, values: Mapping[str, str | None]) -> None:
    token, secret = values.get("token"), values.get("secret")
    sealed = keys.seal(json.dumps(dict(values)).encode(), _bound_to(connection), _PURPOSE)
    connection.key_id, connection.nonce, connection.ciphertext = (
        sealed.key_id,
        sealed.nonce,
        sealed.ciphertext,
    )
    connection.token_hint = hint_of(token) if token else None
    connection.secret_hint = hint_of(secret) if secret else None


def _bound_to(connection: Connection) -> bytes:
    return json.dumps(["repository", connection.repository_id]).encode()


def _audit(session: Session, repository: Repository, verb: str, by: User) -> None:
    record(
        session,
        f"repository.{verb}",
        repository.full_name,
        user_id=by.id,
        workspace_id=repository.workspace_id,
        url=repository.remote_url,
    )

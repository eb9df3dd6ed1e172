"""The open platform: everything that requests, jobs and commands work with, and how one is opened and closed."""

from __future__ import annotations

import hashlib
import os
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from osmosis_platform.accounts.limits import AccountLimits
from osmosis_platform.db.migrate import migrate
from osmosis_platform.db.session import Database
from osmosis_platform.errors import CannotStart
from osmosis_platform.folder import FolderLock, prepare_folder
from osmosis_platform.jobs.queue import JobQueue
from osmosis_platform.live.hub import LiveHub
from osmosis_platform.repositories.git import GitHost
from osmosis_platform.secrets.keys import KeyRing
from osmosis_platform.settings import Settings
from osmosis_platform.storage.signing import UrlSigner
from osmosis_platform.storage.store import BlobStore
from osmosis_platform.storage.uploads import PartStore

if TYPE_CHECKING:
    from osmosis_platform.compute.supervisor import Supervisor


@dataclass(slots=True)
class Platform:
    """One open platform over one data folder.

    `blobs` and `parts` hold big files and uploads in progress, `urls` signs their addresses, `git` hosts repositories.
    `live` tells open pages what changed. `supervisor` starts and watches the processes of runs and of the inference server; it is
    None where nothing runs (commands of an administrator, tests of the API).
    """

    settings: Settings
    database: Database
    blobs: BlobStore
    parts: PartStore
    urls: UrlSigner
    git: GitHost
    keys: KeyRing
    jobs: JobQueue
    lock: FolderLock | None
    live: LiveHub
    limits: AccountLimits = field(default_factory=AccountLimits)
    supervisor: Supervisor | None = None

    def close(self) -> None:
        """Close the database and let another process use the folder."""
        self.live.close()
        self.database.close()
        if self.lock is not None:
            self.lock.release()


def open_platform(settings: Settings, *, exclusive: bool = True) -> Platform:
    """Create or open the data folder and bring its database to the current schema.

    The one process that serves the folder opens it `exclusive`: it holds the folder's lock and clears up what its last process
    left, leases of jobs and half-written files. Short commands beside it do neither.

    Raises CannotStart when another process serves the folder, the folder cannot be used, or the database is newer than this
    version.
    """
    folder = settings.data_dir
    if settings.resolved_key_file.resolve().is_relative_to(folder.resolve()):
        raise CannotStart(
            f"The key file {settings.resolved_key_file} lies in the data folder, where a copy of the data would reveal every secret. "
            "Put it elsewhere and set OSMOSIS_KEY_FILE."
        )
    prepare_folder(folder)
    lock = FolderLock.acquire(folder) if exclusive else None
    database: Database | None = None
    try:
        database = Database(database_url(settings))
        migrate(database)
        keys = KeyRing.open(settings.resolved_key_file)
        platform = Platform(
            settings=settings,
            database=database,
            blobs=BlobStore(folder / "blobs"),
            parts=PartStore(folder / "uploads"),
            urls=UrlSigner(keys, settings.resolved_public_url),
            git=GitHost(folder / "git"),
            keys=keys,
            jobs=JobQueue(database, place=place_of(folder), lease_seconds=settings.lease_seconds),
            lock=lock,
            live=LiveHub(database),
        )
        if exclusive:
            platform.jobs.release_leases_of_this_place()
            platform.jobs.forget_ended()
            platform.blobs.clear_incoming()
    except BaseException:
        if database is not None:
            database.close()
        if lock is not None:
            lock.release()
        raise
    return platform


def database_url(settings: Settings) -> str:
    """The SQLAlchemy URL: the configured one, or SQLite in the data folder."""
    return settings.database_url or f"sqlite:///{settings.data_dir.resolve() / 'osmosis.sqlite3'}"


def place_of(folder: Path) -> str:
    """A name for this folder on this machine: leases of it belong to the one process that holds the folder's lock."""
    digest = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:12]
    return f"{socket.gethostname()}:{digest}"

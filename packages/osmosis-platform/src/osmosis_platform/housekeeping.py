"""Takes away what nothing refers to any more: files of deleted workspaces, replaced content, uploads nobody goes on with, and what
a crash left of runs and servers.
"""

from __future__ import annotations

import logging
import threading
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import batched
from pathlib import Path

from sqlalchemy import delete, exists, select, update
from sqlalchemy.orm import Session

from osmosis_ai.rollout.utils.remove_tree import remove_tree
from osmosis_platform.adapters.models import LoraModel
from osmosis_platform.compute.plan import run_folder
from osmosis_platform.context import Platform
from osmosis_platform.datasets.models import Dataset
from osmosis_platform.datasets.service import cancel_abandoned
from osmosis_platform.db.models import metadata
from osmosis_platform.db.types import utc_now
from osmosis_platform.repositories.git import UNFINISHED
from osmosis_platform.runs.models import TERMINAL, EvalImport, EvalImportFile, Run
from osmosis_platform.storage.blobs import record_blob
from osmosis_platform.storage.models import Blob
from osmosis_platform.storage.open_uploads import unfinished_uploads
from osmosis_platform.storage.store import StoredBlob

log = logging.getLogger("osmosis_platform.housekeeping")

# What was written lately may be named by the next request; a machine that slept in between is no reason to lose it.
GRACE = timedelta(days=1)
EVERY_SECONDS = 6 * 3600.0
_BATCH = 500


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep removed."""

    blobs: int
    bytes: int
    uploads: int


class Housekeeping:
    """Sweeps in a thread of its own: soon after the start, then every six hours, until `stop()`."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="housekeeping", daemon=True)

    def start(self) -> None:
        """Begin; call it before anything runs. What ended runs and servers left is removed at once."""
        remove_folders(self._platform)
        self._thread.start()

    def stop(self) -> None:
        """End, at the next batch if a sweep is under way."""
        self._stop.set()
        self._thread.join()

    def _serve(self) -> None:
        while not self._stop.is_set():
            try:
                swept = sweep(self._platform, stopped=self._stop)
            except Exception:
                log.exception("files that nothing refers to could not be removed; it is tried again later")
            else:
                if swept != Swept(0, 0, 0):
                    log.info(
                        "removed %d files (%d bytes) and %d uploads that nothing refers to",
                        swept.blobs,
                        swept.bytes,
                        swept.uploads,
                    )
            self._stop.wait(EVERY_SECONDS)


def remove_folders(platform: Platform) -> None:
    """Remove the folders of runs, servers and models that have ended or are gone. Only while nothing of them runs."""
    data = platform.settings.data_dir.resolve()
    for name in ("scratch", "dev-servers"):
        remove_tree(data / name)
    for folder in platform.git.folder.glob(f"{UNFINISHED}*"):
        remove_tree(folder)
    with platform.database.read() as session:
        for folder in _entries(data / "adapters"):
            if session.get(LoraModel, folder.name) is None:
                remove_tree(folder)
        for folder in _entries(data / "runs"):
            status = session.scalar(select(Run.status).where(Run.id == folder.name))
            if status is None or status in TERMINAL:
                run_folder(platform, folder.name).clean(keep_work=status in ("failed", "crashed"))


def sweep(
    platform: Platform, *, now: datetime | None = None, stopped: threading.Event | None = None
) -> Swept:
    """Remove uploads and blobs that nothing refers to and that are older than `GRACE`.

    Safe beside everything else: what is stored again meanwhile stays.
    """
    now = now or utc_now()
    before = (now - GRACE).timestamp()
    with platform.database.write() as session:
        cancel_abandoned(session, platform)
        _forget(session, now)
        unfinished = unfinished_uploads(session, now)
    uploads = platform.parts.remove_others(unfinished, before)
    blobs = size = 0
    with platform.database.read() as session:
        referenced = _References(session)
    for batch in batched(platform.blobs.older_than(before), _BATCH):
        if stopped is not None and stopped.is_set():
            break
        for removed in _remove(platform, [blob for blob in batch if blob.sha256 not in referenced], before):
            blobs, size = blobs + 1, size + removed.size
    return Swept(blobs, size, uploads)


def _remove(platform: Platform, unused: list[StoredBlob], before: float) -> Iterator[StoredBlob]:
    if not unused:
        return
    names = [blob.sha256 for blob in unused]
    with platform.database.write() as session:
        session.execute(delete(Blob).where(Blob.sha256.in_(names)))
    for blob in unused:
        if platform.blobs.remove(blob.sha256, before):
            yield blob
        else:  # it was stored again, perhaps while its row was still there
            with platform.database.write() as session:
                record_blob(session, blob)


class _References:
    """The blobs that rows name, as sorted numbers of 64 bits: two that begin alike only keep one blob too many."""

    def __init__(self, session: Session) -> None:
        found = array("Q")
        for values in _columns(session):
            found.extend(int(value[:16], 16) for value in values)
        self._sorted = array("Q", sorted(found))

    def __contains__(self, sha256: str) -> bool:
        number = int(sha256[:16], 16)
        place = bisect_left(self._sorted, number)
        return place < len(self._sorted) and self._sorted[place] == number


def _columns(session: Session) -> Iterator[Iterable[str]]:
    """The values of every column that names blobs: by its name, so that no new table is forgotten."""
    for table in metadata.sorted_tables:
        if table.name == Blob.__tablename__:
            continue
        for column in table.columns:
            if column.name.endswith("sha256"):
                query = select(column).where(column.is_not(None)).execution_options(yield_per=10_000)
                yield session.scalars(query)


def _forget(session: Session, now: datetime) -> None:
    """Let go of the files of datasets that were replaced before a run used them, and of imports that were never finished."""
    used = exists().where(Run.dataset_id == Dataset.id)
    session.execute(
        update(Dataset)
        .where(Dataset.deleted_at < now - GRACE, Dataset.status.not_in(("pending", "processing")), ~used)
        .values(source_sha256=None, rows_sha256=None)
        .execution_options(synchronize_session=False)
    )
    over = select(EvalImport.id).where(
        EvalImport.status == "uploading", EvalImport.expires_at < now, EvalImport.run_id.is_(None)
    )
    session.execute(
        delete(EvalImportFile)
        .where(EvalImportFile.import_id.in_(over))
        .execution_options(synchronize_session=False)
    )
    session.execute(
        delete(EvalImport).where(EvalImport.id.in_(over)).execution_options(synchronize_session=False)
    )


def _entries(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []

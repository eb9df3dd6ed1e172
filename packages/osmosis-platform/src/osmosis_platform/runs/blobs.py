"""Files of a run on their way into the store: secret values are taken out before anything is kept.

A worker names its files by the hash of what it sent. Where the stored content differs, the run remembers under which hash, and
events that name the file lead to what is kept.
"""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from tempfile import SpooledTemporaryFile
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from osmosis_platform.context import Platform
from osmosis_platform.errors import InvalidInput
from osmosis_platform.runs.models import RunBlob
from osmosis_platform.runs.upsert import insert_missing
from osmosis_platform.runs.wire import (
    ArtifactFile,
    AttemptEvent,
    CheckpointEvent,
    Event,
    Redactor,
    SampleEvent,
)
from osmosis_platform.storage.blobs import record_blob
from osmosis_platform.storage.store import CHUNK, StoredBlob

_IN_MEMORY_BYTES = 4 * 1024**2


def store(
    platform: Platform,
    run_id: str,
    source: SpooledTemporaryFile[bytes],
    sha256: str,
    redactor: Redactor | None,
) -> StoredBlob:
    """Check that the bytes have the hash they are named by, and keep them without secrets. Raises InvalidInput."""
    masked = None if redactor is None else _masked(platform, source, sha256, redactor)
    if masked is None:
        source.seek(0)
        with platform.blobs.writer(expected=sha256) as writer:
            while chunk := source.read(CHUNK):
                writer.write(chunk)
        kept = writer.stored
    else:
        kept = masked
    with platform.database.write() as session:
        record_blob(session, kept)
        if masked is not None:
            row = {
                "run_id": run_id,
                "sent_sha256": sha256,
                "kept_sha256": kept.sha256,
                "kept_size": kept.size,
            }
            insert_missing(session, RunBlob, [row])
    return kept


def _masked(
    platform: Platform, source: SpooledTemporaryFile[bytes], sha256: str, redactor: Redactor
) -> StoredBlob | None:
    with _mapped(source) as content:
        pieces = redactor.masked_file(content)
        if pieces is None:
            return None
        found = hashlib.sha256(content).hexdigest()
        if found != sha256:
            raise InvalidInput(f"content hashes to {found}, not to {sha256}", code="HASH_MISMATCH")
        with platform.blobs.writer() as writer:
            for piece in pieces:
                writer.write(piece)
    return writer.stored


@contextmanager
def _mapped(source: SpooledTemporaryFile[bytes]) -> Iterator[bytes]:
    """The whole content as one buffer; what is large stays on disk."""
    size = source.seek(0, os.SEEK_END)
    if size <= _IN_MEMORY_BYTES:
        source.seek(0)
        yield source.read()
        return
    source.rollover()
    source.flush()
    with mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ) as content:
        yield content  # type: ignore[misc] # a buffer as good as bytes for reading


def named_blobs(events: Sequence[Event]) -> set[str]:
    """The blobs that events name."""
    found: set[str | None] = set()
    for event in events:
        if isinstance(event, AttemptEvent):
            found.add(event.trajectory_blob)
        elif isinstance(event, SampleEvent | CheckpointEvent):
            found.add(event.blob)
        if isinstance(event, AttemptEvent | SampleEvent):
            found.update(file.sha256 for file in event.artifacts)
    return {sha256 for sha256 in found if sha256 is not None}


def with_kept_blobs(session: Session, run_id: str, events: Sequence[Event]) -> list[Event]:
    """The events with every blob named as it was kept."""
    named = named_blobs(events)
    if not named:
        return list(events)
    query = select(RunBlob).where(RunBlob.run_id == run_id, RunBlob.sent_sha256.in_(named))
    kept = {row.sent_sha256: row for row in session.scalars(query)}
    return [_with_kept(event, kept) for event in events] if kept else list(events)


def _with_kept(event: Event, kept: dict[str, RunBlob]) -> Event:
    changed: dict[str, Any] = {}
    if isinstance(event, SampleEvent | CheckpointEvent) and event.blob in kept:
        changed["blob"] = kept[event.blob].kept_sha256
    if isinstance(event, AttemptEvent) and event.trajectory_blob in kept:
        changed["trajectory_blob"] = kept[event.trajectory_blob].kept_sha256
    if isinstance(event, AttemptEvent | SampleEvent):
        changed["artifacts"] = [_kept_file(file, kept) for file in event.artifacts]
    return event.model_copy(update=changed)


def _kept_file(file: ArtifactFile, kept: dict[str, RunBlob]) -> ArtifactFile:
    found = kept.get(file.sha256)
    if found is None:
        return file
    return file.model_copy(update={"sha256": found.kept_sha256, "size": found.kept_size})

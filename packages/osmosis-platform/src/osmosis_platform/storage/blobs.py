"""Blobs as rows: every blob that anything refers to is recorded."""

from __future__ import annotations

from sqlalchemy.orm import Session

from osmosis_platform.storage.models import Blob
from osmosis_platform.storage.store import StoredBlob


def record_blob(session: Session, stored: StoredBlob) -> None:
    """Remember a stored blob; recording it twice changes nothing."""
    if session.get(Blob, stored.sha256) is None:
        session.add(Blob(sha256=stored.sha256, size=stored.size))
        session.flush()

"""Which uploads still take parts: those that the database waits for."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from osmosis_platform.datasets.models import Dataset
from osmosis_platform.runs.models import EvalImport, EvalImportFile
from osmosis_platform.storage.models import Upload


def wants_parts(session: Session, upload_id: str) -> bool | None:
    """Whether parts of this upload are still wanted; None when there is no such upload, or somebody has begun it anew."""
    upload = session.get(Upload, upload_id)
    if upload is not None:
        return upload.status == "open"
    state = session.scalar(select(EvalImportFile.state).where(EvalImportFile.upload_id == upload_id).limit(1))
    return None if state is None else state == "pending"


def unfinished_uploads(session: Session, now: datetime) -> set[str]:
    """The uploads whose parts are not joined yet; not those of imports that have run out."""
    of_datasets = (
        select(Upload.id)
        .join(Dataset, Dataset.id == Upload.dataset_id)
        .where(Dataset.status.in_(("uploading", "pending", "processing")))
    )
    of_imports = (
        select(EvalImportFile.upload_id)
        .join(EvalImport, EvalImport.id == EvalImportFile.import_id)
        .where(
            EvalImport.status == "uploading", EvalImport.expires_at > now, EvalImportFile.state == "pending"
        )
    )
    return {*session.scalars(of_datasets), *session.scalars(of_imports)}

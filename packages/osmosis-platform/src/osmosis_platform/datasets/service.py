"""The rules of datasets: names, uploads, replacement, processing."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from sqlalchemy import func, or_, select
from sqlalchemy.orm import Session

from osmosis_ai.datasets import EXTENSIONS
from osmosis_ai.datasets.indexing import IndexedDataset, index_file
from osmosis_platform.accounts.models import User
from osmosis_platform.audit.service import record
from osmosis_platform.datasets.announcements import announce_outcome
from osmosis_platform.datasets.models import Dataset
from osmosis_platform.db.types import utc_now
from osmosis_platform.errors import Conflict, InvalidInput, NotFound
from osmosis_platform.runs.models import TERMINAL, Run
from osmosis_platform.runs.service import log as add_log
from osmosis_platform.storage.blobs import record_blob
from osmosis_platform.storage.models import Upload
from osmosis_platform.storage.uploads import PART_SIZE, plan_parts

if TYPE_CHECKING:
    from osmosis_platform.context import Platform

PROCESS_JOB = "datasets.process"
ABANDONED_AFTER_DAYS = 7


def create(
    session: Session,
    platform: Platform,
    workspace_id: str,
    user: User,
    *,
    name: str,
    size: int,
    extension: str,
    overwrite_id: str | None = None,
) -> tuple[Dataset, Upload]:
    """Begin an upload. A name in use is a Conflict that carries `existing_dataset_id`, unless that id is to be replaced.

    An interrupted upload in parts of the same person, name, type and size goes on: the same dataset, with the parts that are there.
    Failed, cancelled and other abandoned uploads of the same person do not hold a name.
    """
    extension = extension.lower().removeprefix(".")
    if extension not in EXTENSIONS:
        raise InvalidInput(
            f"Unsupported file type '{extension}'. Supported: {', '.join(EXTENSIONS)}", field="extension"
        )
    if not name.strip() or len(name) > 255 or "\x00" in name:
        raise InvalidInput("The dataset name must have 1 to 255 characters.", field="file_name")
    if not name.strip(" .\t"):
        raise InvalidInput(f"A dataset cannot be named '{name}': rename the file.", field="file_name")
    if not 1 <= size <= platform.settings.max_upload_bytes:
        raise InvalidInput(
            f"The file has {size} bytes; allowed are 1 to {platform.settings.max_upload_bytes}.",
            field="file_size",
        )
    cancel_abandoned(session, platform)
    existing = _holder(session, workspace_id, name)
    while existing is not None and _gives_way(existing, user, overwrite_id):
        if existing.status == "uploading" and (existing.file_size, existing.extension) == (size, extension):
            upload = upload_of(session, existing)
            if upload.method == "multipart":  # its completion names every part's ETag, so files cannot mix
                add_log(session, existing.id, "Upload goes on", step="upload")
                existing.updated_at = utc_now()
                return existing, upload
        if overwrite_id == existing.id:
            overwrite_id = existing.replaces_id
        _retire(session, platform, existing)
        existing = _holder(session, workspace_id, name)
    if existing is not None and existing.id != overwrite_id:
        raise Conflict(
            f"A dataset named {name} exists already. Pass --overwrite to replace it, or rename the file.",
            code="DATASET_EXISTS",
            extra={"existing_dataset_id": existing.id},
        )
    dataset = Dataset(
        workspace_id=workspace_id,
        name=name,
        extension=extension,
        file_size=size,
        creator_id=user.id,
        replaces_id=existing.id if existing else None,
    )
    session.add(dataset)
    session.flush()
    record(session, "dataset.upload", name, user_id=user.id, workspace_id=workspace_id, size=size)
    parts = plan_parts(size)
    upload = Upload(
        dataset_id=dataset.id,
        method="simple" if len(parts) == 1 else "multipart",
        size=size,
        part_size=PART_SIZE,
        total_parts=len(parts),
    )
    session.add(upload)
    session.flush()
    add_log(session, dataset.id, "Upload started", step="upload")
    return dataset, upload


def cancel_abandoned(session: Session, platform: Platform) -> None:
    """Give back the room of uploads that nobody has gone on with for a week."""
    old = utc_now() - timedelta(days=ABANDONED_AFTER_DAYS)
    query = select(Dataset).where(Dataset.status == "uploading", Dataset.updated_at < old).limit(100)
    for dataset in session.scalars(query).all():
        abort(session, platform, dataset)


def _holder(session: Session, workspace_id: str, name: str) -> Dataset | None:
    return session.scalar(
        select(Dataset)
        .where(Dataset.workspace_id == workspace_id, Dataset.name == name, Dataset.deleted_at.is_(None))
        .order_by(Dataset.created_at.desc())
        .limit(1)
    )


def holder_id(session: Session, workspace_id: str, name: str) -> str | None:
    """The id of the dataset that has this name, if there is one."""
    found = _holder(session, workspace_id, name)
    return found.id if found else None


def _gives_way(dataset: Dataset, user: User, overwrite_id: str | None) -> bool:
    if dataset.status in ("error", "cancelled"):
        return True
    if dataset.status != "uploading" or dataset.creator_id != user.id:
        return False
    return dataset.replaces_id is None or overwrite_id in (dataset.id, dataset.replaces_id)


def _retire(session: Session, platform: Platform, dataset: Dataset) -> None:
    dataset.deleted_at = utc_now()
    if dataset.status == "uploading":
        upload = upload_of(session, dataset)
        dataset.status, upload.status = "cancelled", "aborted"
        platform.parts.discard(upload.id)
    session.flush()


def find(session: Session, workspace_id: str, name_or_id: str) -> Dataset:
    """The dataset of a name or id. Raises NotFound.

    Of several with one name it is the newest; one whose file never came does not hide an older one that can be used.
    """
    dataset = session.scalar(
        select(Dataset)
        .where(
            Dataset.workspace_id == workspace_id,
            Dataset.deleted_at.is_(None),
            or_(Dataset.id == name_or_id, Dataset.name == name_or_id),
        )
        .order_by(
            (Dataset.id == name_or_id).desc(),
            Dataset.status.in_(("uploading", "cancelled")),
            Dataset.created_at.desc(),
        )
        .limit(1)
    )
    if dataset is None:
        raise NotFound(f"Dataset {name_or_id} was not found in this workspace. See: osmosis dataset list")
    return dataset


def find_upload(session: Session, workspace_id: str, dataset_id: str) -> Dataset:
    """The dataset that is being uploaded. Raises NotFound, which says so when another upload took its place."""
    dataset = session.get(Dataset, dataset_id)
    if dataset is None or dataset.workspace_id != workspace_id or dataset.deleted_at is None:
        return find(session, workspace_id, dataset_id)
    replaced = _holder(session, workspace_id, dataset.name) is not None
    reason = "another upload of this name took its place" if replaced else "the dataset was deleted"
    raise NotFound(f"The upload of {dataset.name} is over: {reason}. See: osmosis dataset list")


def find_ready(session: Session, workspace_id: str, name_or_id: str) -> Dataset:
    """The newest processed dataset of a name or id, for a run. Raises NotFound, or Conflict when none is ready."""
    found = find(session, workspace_id, name_or_id)
    if found.status == "uploaded":
        return found
    older = session.get(Dataset, found.replaces_id) if found.replaces_id else None
    if older is not None and older.deleted_at is None and older.status == "uploaded":
        return older
    raise Conflict(
        f"Dataset {found.name} is not ready (status {found.status}). See: osmosis dataset info {quote(found.name)}",
        code="DATASET_NOT_READY",
    )


def page_of(session: Session, workspace_id: str, limit: int, offset: int) -> tuple[list[Dataset], int]:
    """(datasets, total), newest first."""
    where = (Dataset.workspace_id == workspace_id, Dataset.deleted_at.is_(None))
    total = session.scalar(select(func.count()).select_from(Dataset).where(*where)) or 0
    query = (
        select(Dataset)
        .where(*where)
        .order_by(Dataset.created_at.desc(), Dataset.id)
        .limit(limit)
        .offset(offset)
    )
    return list(session.scalars(query)), total


def upload_of(session: Session, dataset: Dataset) -> Upload:
    """The dataset's upload."""
    return session.scalars(select(Upload).where(Upload.dataset_id == dataset.id)).one()


def complete(session: Session, platform: Platform, dataset: Dataset, etags: Mapping[int, str] | None) -> None:
    """The parts are there: queue processing. Repeating it changes nothing. Raises Conflict when a part is missing."""
    upload = upload_of(session, dataset)
    if upload.status == "completed":
        return
    if upload.status == "aborted" or dataset.status != "uploading":
        raise Conflict(f"The upload of {dataset.name} was cancelled: start it again.")
    sizes = plan_parts(upload.size, upload.part_size)
    platform.parts.check_complete(upload.id, sizes, dict(etags) if etags is not None else None)
    upload.status = "completed"
    dataset.status = "pending"
    add_log(session, dataset.id, f"Upload complete: {dataset.file_size} bytes", step="upload")
    platform.jobs.enqueue(
        session, "light", PROCESS_JOB, {"dataset_id": dataset.id}, dedupe_key=f"dataset:{dataset.id}"
    )


def abort(session: Session, platform: Platform, dataset: Dataset) -> None:
    """Cancel an upload in progress; anything later is left as it is."""
    upload = upload_of(session, dataset)
    if dataset.status == "uploading":
        dataset.status, upload.status = "cancelled", "aborted"
        add_log(session, dataset.id, "Upload cancelled", level="warning", step="upload")
        platform.parts.discard(upload.id)


def why_not_deleted(session: Session, dataset: Dataset) -> str | None:
    """What keeps a dataset from being deleted: it is being checked, or a run that is not over reads it."""
    if dataset.status in ("pending", "processing"):
        return f"Dataset {dataset.name} is being checked. Wait for that to end."
    name = session.scalar(
        select(Run.name).where(Run.dataset_id == dataset.id, Run.status.not_in(TERMINAL)).limit(1)
    )
    return f"Run {name} uses dataset {dataset.name}. Stop it or wait for it." if name is not None else None


def delete(session: Session, platform: Platform, dataset: Dataset, *, by: User) -> None:
    """Take a dataset away; runs that used it keep their results. Raises Conflict."""
    reason = why_not_deleted(session, dataset)
    if reason is not None:
        raise Conflict(reason, code="DATASET_IN_USE")
    _retire(session, platform, dataset)
    record(session, "dataset.delete", dataset.name, user_id=by.id, workspace_id=dataset.workspace_id)


def process(platform: Platform, dataset_id: str) -> None:
    """Job: assemble the file, validate every row and write the normalised rows. Running it twice changes nothing."""
    with platform.database.write() as session:
        dataset = session.get_one(Dataset, dataset_id)
        if dataset.status not in ("pending", "processing"):
            return
        dataset.status = "processing"
        upload = upload_of(session, dataset)
        upload_id, parts, extension, source = (
            upload.id,
            upload.total_parts,
            dataset.extension,
            dataset.source_sha256,
        )
        add_log(session, dataset.id, "Validating every row", step="processing")
    if source is None:
        stored = platform.parts.assemble(upload_id, parts, platform.blobs)
        with platform.database.write() as session:
            record_blob(session, stored)
            session.get_one(Dataset, dataset_id).source_sha256 = source = stored.sha256
        platform.parts.discard(upload_id)
    with tempfile.TemporaryDirectory(dir=_scratch(platform)) as folder:
        rows = Path(folder) / "rows.parquet"
        indexed = index_file(platform.blobs.path(source), rows, extension=extension)
        rows_blob = platform.blobs.put_file(rows) if indexed.report.valid else None
    with platform.database.write() as session:
        dataset = session.get_one(Dataset, dataset_id)
        if rows_blob is None:
            _fail(session, dataset, indexed)
            return
        record_blob(session, rows_blob)
        dataset.rows_sha256 = rows_blob.sha256
        dataset.row_count, dataset.columns = indexed.report.row_count, indexed.report.columns
        dataset.preview, dataset.status, dataset.error = indexed.preview, "uploaded", None
        for message in indexed.report.warnings:
            add_log(session, dataset.id, message, level="warning", step="processing")
        add_log(session, dataset.id, f"Ready: {dataset.row_count} rows", step="processing")
        announce_outcome(session, dataset)
        if dataset.replaces_id:
            older = session.get_one(Dataset, dataset.replaces_id)
            older.deleted_at = older.deleted_at or utc_now()


def _fail(session: Session, dataset: Dataset, indexed: IndexedDataset) -> None:
    dataset.status = "error"
    file = f"{dataset.name}.{dataset.extension}"
    dataset.error = f"{file}: " + "; ".join(indexed.report.errors)
    for message in indexed.report.errors:
        add_log(session, dataset.id, f"{file}: {message}", level="error", step="processing")
    announce_outcome(session, dataset)


def _scratch(platform: Platform) -> Path:
    folder = platform.settings.data_dir / "scratch"
    folder.mkdir(exist_ok=True)
    return folder


def rows_file(platform: Platform, dataset: Dataset, destination: Path) -> Path:
    """Put the dataset's rows at `destination` (a hard link where possible)."""
    assert dataset.rows_sha256 is not None
    destination.unlink(missing_ok=True)
    source = platform.blobs.path(dataset.rows_sha256)
    try:
        destination.hardlink_to(source)
    except OSError:
        shutil.copyfile(source, destination)
    return destination


def body(
    dataset: Dataset, creator: str | None, platform_url: str | None, *, preview: bool = False
) -> dict[str, Any]:
    """A dataset on the wire."""
    data: dict[str, Any] = {
        "id": dataset.id,
        "file_name": dataset.name,
        "file_size": dataset.file_size,
        "status": dataset.status,
        "file_format": dataset.extension,
        "original_file_format": dataset.extension,
        "row_count": dataset.row_count,
        "original_file_size": None,
        "creator_name": creator,
        "created_at": dataset.created_at.isoformat(),
        "updated_at": dataset.updated_at.isoformat(),
        "platform_url": platform_url,
        "is_internal_user": False,
        "error": dataset.error,
    }
    if preview:
        data["data_preview"] = dataset.preview
    return data

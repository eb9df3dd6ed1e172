"""`/api/cli/datasets`."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from osmosis_platform.accounts.models import User
from osmosis_platform.context import Platform
from osmosis_platform.datasets import service
from osmosis_platform.datasets.models import Dataset
from osmosis_platform.errors import Conflict
from osmosis_platform.http.logs import LogQuery, logs_page
from osmosis_platform.http.paging import PageQuery
from osmosis_platform.http.scope import PlatformDep, Scope, WorkspaceScope
from osmosis_platform.storage.models import Upload
from osmosis_platform.storage.uploads import plan_parts

router = APIRouter(prefix="/api/cli/datasets", tags=["datasets"])


class CreateDataset(BaseModel):
    """Begin an upload."""

    file_name: str
    file_size: int
    extension: str
    overwrite_dataset_id: str | None = None


class CompletedPart(BaseModel):
    """One uploaded part."""

    PartNumber: int = Field(ge=1)
    ETag: str


class CompleteDataset(BaseModel):
    """All parts are uploaded."""

    file_extension: str | None = None
    parts: list[CompletedPart] | None = None


def _body(
    session: Session, platform: Platform, scope: WorkspaceScope, dataset: Dataset, *, preview: bool = False
) -> dict[str, Any]:
    creator = session.get(User, dataset.creator_id)
    url = f"{platform.settings.resolved_public_url}/{scope.workspace.name}/datasets/{dataset.id}"
    return service.body(dataset, creator.name if creator else None, url, preview=preview)


def upload_body(platform: Platform, upload: Upload) -> dict[str, Any]:
    """Where the bytes of an upload go, and which parts of it are there."""
    sizes = plan_parts(upload.size, upload.part_size)
    body: dict[str, Any] = {
        "method": upload.method,
        "s3_key": upload.id,
        "upload_id": upload.id,
        "expires_in": 24 * 3600,
        "upload_headers": {},
        # What an interrupted upload need not send again; clients that do not know it send everything.
        "uploaded_parts": [
            {"part_number": part.number, "size": part.size, "sha256": part.sha256, "etag": part.sha256}
            for _, part in sorted(platform.parts.stored(upload.id).items())
        ],
    }
    if upload.method == "simple":
        return {**body, "presigned_url": platform.urls.upload_url(upload.id, 1, upload.size)}
    urls = [
        {"part_number": n, "size": size, "presigned_url": platform.urls.upload_url(upload.id, n, size)}
        for n, size in enumerate(sizes, start=1)
    ]
    return {**body, "part_size": upload.part_size, "total_parts": len(sizes), "presigned_urls": urls}


@router.post("", status_code=201)
def create_dataset(body: CreateDataset, platform: PlatformDep, scope: Scope) -> dict[str, Any]:
    """Create a dataset, or go on with its interrupted upload, and say where the bytes go."""
    with platform.database.write() as session:
        dataset, upload = service.create(
            session,
            platform,
            scope.workspace.id,
            scope.user,
            name=body.file_name,
            size=body.file_size,
            extension=body.extension,
            overwrite_id=body.overwrite_dataset_id,
        )
        return {**_body(session, platform, scope, dataset), "upload": upload_body(platform, upload)}


@router.get("")
def list_datasets(platform: PlatformDep, scope: Scope, page: PageQuery) -> dict[str, Any]:
    """Datasets, newest first."""
    with platform.database.read() as session:
        found, total = service.page_of(session, scope.workspace.id, page.limit, page.offset)
        return page.body("datasets", [_body(session, platform, scope, d) for d in found], total)


@router.get("/{name_or_id}")
def get_dataset(name_or_id: str, platform: PlatformDep, scope: Scope) -> dict[str, Any]:
    """One dataset, with its first rows."""
    with platform.database.read() as session:
        dataset = service.find(session, scope.workspace.id, name_or_id)
        return _body(session, platform, scope, dataset, preview=True)


@router.post("/{dataset_id}/complete")
def complete_dataset(
    dataset_id: str, body: CompleteDataset, platform: PlatformDep, scope: Scope
) -> dict[str, Any]:
    """Finish the upload; processing follows."""
    etags = {part.PartNumber: part.ETag.strip('"') for part in body.parts} if body.parts is not None else None
    with platform.database.write() as session:
        dataset = service.find_upload(session, scope.workspace.id, dataset_id)
        service.complete(session, platform, dataset, etags)
        return _body(session, platform, scope, dataset)


@router.post("/{dataset_id}/abort")
def abort_dataset(dataset_id: str, platform: PlatformDep, scope: Scope) -> dict[str, Any]:
    """Cancel the upload."""
    with platform.database.write() as session:
        dataset = service.find_upload(session, scope.workspace.id, dataset_id)
        service.abort(session, platform, dataset)
        return _body(session, platform, scope, dataset)


@router.get("/{name_or_id}/download")
def download_dataset(name_or_id: str, platform: PlatformDep, scope: Scope) -> dict[str, Any]:
    """A signed address of the file as it was uploaded."""
    with platform.database.read() as session:
        dataset = service.find(session, scope.workspace.id, name_or_id)
        if dataset.status != "uploaded" or dataset.source_sha256 is None:
            raise Conflict(f"Dataset {dataset.name} cannot be downloaded: its status is {dataset.status}.")
        name = f"{dataset.name}.{dataset.extension}"
        url = platform.urls.download_url(dataset.source_sha256, name)
    return {"presigned_url": url, "expires_in": 900, "file_name": name}


@router.get("/{name_or_id}/logs")
def dataset_logs(name_or_id: str, platform: PlatformDep, scope: Scope, window: LogQuery) -> dict[str, Any]:
    """Lifecycle log of a dataset."""
    with platform.database.read() as session:
        dataset = service.find(session, scope.workspace.id, name_or_id)
        return logs_page(session, dataset.id, window.limit, window.direction, window.cursor)

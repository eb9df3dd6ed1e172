"""Uploading in the browser, in parts that go on after an interruption, and deleting."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import PurePath
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from fastapi import APIRouter, Form, Query, Request, Response, UploadFile
from fastapi.responses import JSONResponse, RedirectResponse
from starlette.concurrency import run_in_threadpool

from osmosis_platform.accounts.views import safe_target
from osmosis_platform.context import Platform
from osmosis_platform.datasets import service
from osmosis_platform.datasets.api import upload_body
from osmosis_platform.datasets.models import Dataset
from osmosis_platform.http.scope import PlatformDep
from osmosis_platform.runs.manage_views import chosen_ids
from osmosis_platform.storage.models import Upload
from osmosis_platform.storage.store import CHUNK
from osmosis_platform.storage.uploads import plan_parts
from osmosis_platform.web.pages import render
from osmosis_platform.web.viewer import Csrf, Viewer, ViewerDep

router = APIRouter(include_in_schema=False)
MAX_CHOSEN = 50


@router.post("/{workspace}/datasets/uploads", dependencies=[Csrf])
def begin_upload(
    platform: PlatformDep,
    viewer: ViewerDep,
    name: Annotated[str, Form()] = "",
    size: Annotated[int, Form()] = 0,
    overwrite: Annotated[str, Form()] = "",
) -> Response:
    """Begin an upload or go on with an interrupted one: where each part goes, on this very site. `name` is the file's."""
    with platform.database.write() as session:
        dataset, upload = _create(session, platform, viewer, name, size, overwrite)
        body = upload_body(platform, upload)
    addresses = body.pop("presigned_urls", None) or [
        {"part_number": 1, "size": size, "presigned_url": body.pop("presigned_url")}
    ]
    parts = [
        {"number": part["part_number"], "size": part["size"], "url": _here(part["presigned_url"])}
        for part in addresses
    ]
    there = {part["part_number"]: part["sha256"] for part in body["uploaded_parts"]}
    answer = {"id": dataset.id, "name": dataset.name, "parts": parts, "there": there}
    return JSONResponse(answer, status_code=201)


@router.post("/{workspace}/datasets/{dataset_id}/complete", dependencies=[Csrf])
def complete_upload(
    platform: PlatformDep,
    viewer: ViewerDep,
    dataset_id: str,
    etag: Annotated[list[str] | None, Form()] = None,
) -> Response:
    """Every part was sent (`etag` of each, in order): the file is checked next."""
    etags = {number: text.strip('"') for number, text in enumerate(etag or [], start=1)}
    with platform.database.write() as session:
        dataset = service.find_upload(session, viewer.workspace_id, dataset_id)
        service.complete(session, platform, dataset, etags)
        return JSONResponse({"id": dataset.id, "status": dataset.status})


@router.post("/{workspace}/datasets/{dataset_id}/abort", dependencies=[Csrf])
def abort_upload(platform: PlatformDep, viewer: ViewerDep, dataset_id: str) -> Response:
    """Give the upload up."""
    with platform.database.write() as session:
        dataset = service.find_upload(session, viewer.workspace_id, dataset_id)
        service.abort(session, platform, dataset)
        return JSONResponse({"id": dataset.id, "status": dataset.status})


@router.post("/{workspace}/datasets", dependencies=[Csrf])
async def upload_whole(
    request: Request,
    platform: PlatformDep,
    viewer: ViewerDep,
    file: UploadFile,
    overwrite: Annotated[str, Form()] = "",
) -> Response:
    """A small file in one form, for browsers without script; larger ones are refused with the way to send them."""
    begun = await run_in_threadpool(_begin, platform, viewer, file.filename or "", file.size or 0, overwrite)
    dataset, upload = begun
    for number, size in enumerate(plan_parts(upload.size, upload.part_size), start=1):
        await platform.parts.receive(upload.id, number, size, _read(file, size))
    await run_in_threadpool(_complete, platform, viewer, dataset.id)
    return RedirectResponse(f"/{viewer.workspace}/datasets/{dataset.id}", status_code=303)


@router.get("/{workspace}/datasets/bulk")
def bulk_page(
    request: Request,
    platform: PlatformDep,
    viewer: ViewerDep,
    action: Literal["delete"],
    dataset: Annotated[list[str] | None, Query(max_length=MAX_CHOSEN)] = None,
    back: str = "",
) -> Response:
    """What would happen to each of the chosen datasets, and the button that does it."""
    items = [_delete(platform, viewer, dataset_id, look=True) for dataset_id in chosen_ids(dataset)]
    return _page(request, viewer, items, back, done=False)


@router.post("/{workspace}/datasets/bulk", dependencies=[Csrf])
def bulk(
    request: Request,
    platform: PlatformDep,
    viewer: ViewerDep,
    action: Annotated[Literal["delete"], Form()],
    dataset: Annotated[list[str] | None, Form(max_length=MAX_CHOSEN)] = None,
    back: Annotated[str, Form()] = "",
) -> Response:
    """Delete the chosen datasets; those that cannot be stay, and the answer says why."""
    items = [_delete(platform, viewer, dataset_id, look=False) for dataset_id in chosen_ids(dataset)]
    if any(item["refused"] for item in items):
        return _page(request, viewer, items, back, done=True)
    return RedirectResponse(safe_target(back or f"/{viewer.workspace}/datasets"), status_code=303)


def _page(
    request: Request, viewer: Viewer, items: list[dict[str, Any]], back: str, *, done: bool
) -> Response:
    data: dict[str, Any] = {"action": "delete", "datasets": items, "done": done}
    list_path = f"/{viewer.workspace}/datasets"
    chrome: dict[str, Any] = {
        "noun": "dataset",
        "field": "dataset",
        "path": f"{list_path}/bulk",
        "list_path": list_path,
        "list_title": "Datasets",
        "back": safe_target(back or list_path),
    }
    return render(request, "bulk.html", data, viewer=viewer, room="datasets", items=items, **chrome)


def _delete(platform: Platform, viewer: Viewer, dataset_id: str, *, look: bool) -> dict[str, Any]:
    transaction = platform.database.read() if look else platform.database.write()
    with transaction as session:
        dataset = service.find(session, viewer.workspace_id, dataset_id)
        refused = service.why_not_deleted(session, dataset)
        if refused is None and not look:
            service.delete(session, platform, dataset, by=viewer.user)
    return {"id": dataset.id, "name": dataset.name, "status": dataset.status, "refused": refused}


def _begin(
    platform: Platform, viewer: Viewer, name: str, size: int, overwrite: str
) -> tuple[Dataset, Upload]:
    with platform.database.write() as session:
        return _create(session, platform, viewer, name, size, overwrite)


def _complete(platform: Platform, viewer: Viewer, dataset_id: str) -> None:
    with platform.database.write() as session:
        dataset = service.find_upload(session, viewer.workspace_id, dataset_id)
        service.complete(session, platform, dataset, None)


def _create(
    session: Any, platform: Platform, viewer: Viewer, name: str, size: int, overwrite: str
) -> tuple[Dataset, Upload]:
    """A dataset of the file's name without its ending. `overwrite`: `yes` replaces one of that name."""
    path = PurePath(name.replace("\\", "/"))
    replaced = overwrite or None
    if overwrite == "yes":
        replaced = service.holder_id(session, viewer.workspace_id, path.stem)
    return service.create(
        session,
        platform,
        viewer.workspace_id,
        viewer.user,
        name=path.stem,
        size=size,
        extension=path.suffix,
        overwrite_id=replaced,
    )


def _here(address: str) -> str:
    """The address on the site that shows the page, whatever name the platform goes by."""
    parts = urlsplit(address)
    return f"{parts.path}?{parts.query}"


async def _read(file: UploadFile, size: int) -> AsyncIterator[bytes]:
    left = size
    while left and (chunk := await file.read(min(CHUNK, left))):
        left -= len(chunk)
        yield chunk

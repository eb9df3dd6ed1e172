"""Rules of uploads: one at a time per LoRA model, to a repository of Hugging Face, by a job."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from osmosis_platform.accounts.models import User
from osmosis_platform.adapters.models import LoraModel
from osmosis_platform.audit.service import record
from osmosis_platform.context import Platform
from osmosis_platform.errors import Conflict, InvalidInput, NotFound
from osmosis_platform.hugging_face.models import HubUpload
from osmosis_platform.hugging_face.tokens import find_token

QUEUE = "hugging-face"
UPLOAD_JOB = "hugging-face.upload"
TRIES = 3
MAX_REPOSITORY = 96
_REPOSITORY = re.compile(r"(\w|\w[\w.-]*\w)/(\w|\w[\w.-]*\w)", re.ASCII)


def start_upload(
    session: Session,
    platform: Platform,
    by: User,
    model: LoraModel,
    *,
    token_id: str,
    repository: str,
    private: bool,
) -> HubUpload:
    """Queue the upload of a model's adapter, in place of its earlier one's record.

    Raises InvalidInput for a name that no repository has, NotFound without the token or the files, Conflict while one is going on.
    """
    _check_repository(repository)
    token = find_token(session, model.workspace_id, token_id)
    if not platform.blobs.exists(model.blob_sha256):
        raise NotFound(f"The files of {model.name} are no longer stored.")
    upload = latest(session, model.id)
    if upload is not None and upload.status == "uploading":
        raise Conflict(
            f"{model.name} is being uploaded to {upload.repository}. Wait until that has ended.",
            code="UPLOAD_RUNNING",
        )
    if upload is None:
        upload = HubUpload(model_id=model.id, run_id=model.run_id)
        session.add(upload)
    upload.token_id, upload.repository, upload.private = token.id, repository, private
    upload.status, upload.error, upload.url, upload.finished_at = "uploading", None, None, None
    upload.uploader_id = by.id
    session.flush()
    platform.jobs.enqueue(session, QUEUE, UPLOAD_JOB, {"upload_id": upload.id}, max_attempts=TRIES)
    record(
        session,
        "model.hf_upload",
        model.name,
        user_id=by.id,
        workspace_id=model.workspace_id,
        repository=repository,
        token=token.name,
        private=private,
    )
    return upload


def latest(session: Session, model_id: str) -> HubUpload | None:
    """The latest upload of a model, if there was one."""
    return session.scalar(select(HubUpload).where(HubUpload.model_id == model_id))


def by_model(session: Session, model_ids: Collection[str]) -> dict[str, HubUpload]:
    """The latest uploads of these models, by the model's id."""
    found = session.scalars(select(HubUpload).where(HubUpload.model_id.in_(model_ids)))
    return {upload.model_id: upload for upload in found}


def facts(session: Session, upload: HubUpload | None) -> dict[str, Any]:
    """An upload on the wire: how the latest one stands, where it is once it is there, and whose it was. All null without any."""
    person = session.get(User, upload.uploader_id) if upload is not None else None
    return {
        "hf_upload_status": upload.status if upload is not None else None,
        "hf_url": upload.url if upload is not None else None,
        "uploaded_by": person.name if person is not None else None,
    }


def page_facts(session: Session, upload: HubUpload | None) -> dict[str, Any] | None:
    """An upload as the model's page shows it; None without any."""
    if upload is None:
        return None
    person = session.get(User, upload.uploader_id)
    return {
        "status": upload.status,
        "error": upload.error,
        "repository": upload.repository,
        "private": upload.private,
        "url": upload.url,
        "token_id": upload.token_id,
        "uploaded_by": person.name if person is not None else None,
        "finished_at": upload.finished_at.isoformat() if upload.finished_at else None,
    }


def _check_repository(repository: str) -> None:
    bad = "--" in repository or ".." in repository or repository.endswith(".git")
    if bad or len(repository) > MAX_REPOSITORY or not _REPOSITORY.fullmatch(repository):
        raise InvalidInput(
            "A repository is owner/name: letters, digits, and single . _ or - between them, at most "
            f"{MAX_REPOSITORY} characters, for example my-team/my-adapter.",
            field="repository",
        )

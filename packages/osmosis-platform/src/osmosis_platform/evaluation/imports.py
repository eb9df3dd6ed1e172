"""Evaluations made on somebody's own machine become runs here: declare the files, upload them, finalize."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, FiniteFloat, field_validator
from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from osmosis_platform.context import Platform
from osmosis_platform.db.types import new_id, utc_now
from osmosis_platform.errors import Conflict, InvalidInput, NotFound
from osmosis_platform.evaluation.imported_run import build_run
from osmosis_platform.http.scope import WorkspaceScope
from osmosis_platform.runs.models import EvalImport, EvalImportFile, Run
from osmosis_platform.runs.service import page_url
from osmosis_platform.runs.wire import Sha256
from osmosis_platform.storage.blobs import record_blob
from osmosis_platform.storage.uploads import PART_SIZE, plan_parts

OPEN_DAYS = 7
MAX_FILES = 200_000
_PATH = re.compile(
    r"^(?:index\.jsonl|progress\.json|logs\.txt"
    r"|rollout_trials/[0-9a-f]{32}/(?:trajectory[^/]*\.json|artifacts/.+))$"
)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)


class DeclaredFile(_Strict):
    """A file of the local run."""

    path: Annotated[str, Field(max_length=1024)]
    size: Annotated[int, Field(ge=0, lt=2**40)]
    sha256: Sha256

    @field_validator("path")
    @classmethod
    def _known(cls, value: str) -> str:
        parts = value.split("/")
        if "\\" in value or not _PATH.match(value) or any(part in ("", ".", "..") for part in parts):
            raise ValueError("is no file of an evaluation")
        return value


class DeclaredRollout(_Strict):
    """The code of the local run."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    source_digest: str | None = None
    branch: str | None = None
    commit_sha: str | None = None


class DeclaredDataset(_Strict):
    """The dataset of the local run."""

    name: Annotated[str, Field(min_length=1, max_length=500)]
    sha256: str | None = None
    selected_source_rows: str | None = None


class DeclaredExperiment(_Strict):
    """What the local run evaluated."""

    rollout: DeclaredRollout
    entrypoint: str
    model_path: str
    dataset: DeclaredDataset


class DeclaredSettings(_Strict):
    """How the local run was scored."""

    n: Annotated[int, Field(ge=1, le=1_000_000)]
    pass_threshold: FiniteFloat


class DeclaredRun(_Strict):
    """The local run."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    started_at: AwareDatetime | None = None
    completed_at: AwareDatetime | None = None
    experiment_config: DeclaredExperiment
    evaluation_config: DeclaredSettings


class StartImport(_Strict):
    """Body of `POST /api/cli/eval-runs/imports`."""

    schema_version: Literal[1]
    local_run_id: Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
    manifest_digest: Sha256
    run: DeclaredRun
    schema_versions: dict[str, Any] = {}
    provenance: dict[str, Any] = {}
    files: Annotated[list[DeclaredFile], Field(min_length=1, max_length=MAX_FILES)]
    reimport: bool = False

    @field_validator("files")
    @classmethod
    def _complete(cls, value: list[DeclaredFile]) -> list[DeclaredFile]:
        paths = [file.path for file in value]
        if len(set(paths)) != len(paths):
            raise ValueError("names a path twice")
        missing = {"index.jsonl", "progress.json"} - set(paths)
        if missing:
            raise ValueError(f"lacks {', '.join(sorted(missing))}")
        return value


def start(session: Session, platform: Platform, scope: WorkspaceScope, body: StartImport) -> EvalImport:
    """Begin or resume an import. Raises Conflict for other content of a run imported before, unless `reimport` is set."""
    found = session.scalar(
        select(EvalImport).where(
            EvalImport.workspace_id == scope.workspace.id, EvalImport.local_run_id == body.local_run_id
        )
    )
    if found is not None and _declares_the_same(session, found, body):
        found.expires_at = utc_now() + timedelta(days=OPEN_DAYS)
        return found
    if found is not None and found.status == "finalized" and not body.reimport:
        raise Conflict("This local run was imported before, with other content.", code="ALREADY_IMPORTED")
    if found is None:
        found = EvalImport(
            workspace_id=scope.workspace.id, creator_id=scope.user.id, local_run_id=body.local_run_id
        )
        session.add(found)
    found.manifest_digest, found.status = body.manifest_digest, "uploading"
    found.declaration = body.model_dump(mode="json", exclude={"files"})
    found.expires_at = utc_now() + timedelta(days=OPEN_DAYS)
    session.flush()
    _declare_files(session, platform, found, body.files)
    return found


def _declares_the_same(session: Session, found: EvalImport, body: StartImport) -> bool:
    # The digest alone does not tell: clients keep it when they run failed attempts of the same local run again.
    if found.manifest_digest != body.manifest_digest:
        return False
    known = {(file.path, file.size, file.sha256) for file in files_of(session, found)}
    return known == {(file.path, file.size, file.sha256) for file in body.files}


def _declare_files(
    session: Session, platform: Platform, found: EvalImport, declared: Sequence[DeclaredFile]
) -> None:
    """Replace the declared files; those that this import brought already are not sent again."""
    known = {file.path: file for file in files_of(session, found)}
    have = {(file.sha256, file.size) for file in known.values() if file.state == "uploaded"}
    for file in known.values():
        platform.parts.discard(file.upload_id)
    session.execute(delete(EvalImportFile).where(EvalImportFile.import_id == found.id))
    session.expire_all()
    session.add_all(
        EvalImportFile(
            import_id=found.id,
            path=file.path,
            size=file.size,
            sha256=file.sha256,
            upload_id=new_id(),
            state="uploaded" if (file.sha256, file.size) in have else "pending",
        )
        for file in declared
    )
    session.flush()


def files_of(session: Session, found: EvalImport) -> list[EvalImportFile]:
    """The declared files by path."""
    query = select(EvalImportFile).where(EvalImportFile.import_id == found.id)
    return list(session.scalars(query.order_by(EvalImportFile.path)))


def find_import(session: Session, scope: WorkspaceScope, session_id: str) -> EvalImport:
    """The import in the caller's workspace; raises NotFound."""
    found = session.get(EvalImport, session_id)
    if found is None or found.workspace_id != scope.workspace.id:
        raise NotFound(f"There is no import with the id {session_id}. Start the upload again.")
    return found


def instructions(
    session: Session, platform: Platform, found: EvalImport, paths: Sequence[str]
) -> list[dict[str, Any]]:
    """Where to send those of the files that are still missing."""
    answer = []
    for path in paths:
        file = _file(session, found, path)
        if file.state != "uploaded":
            answer.append(
                {"path": path, "size": file.size, "sha256": file.sha256, "upload": _upload(platform, file)}
            )
    return answer


def _upload(platform: Platform, file: EvalImportFile) -> dict[str, Any]:
    sizes = plan_parts(file.size)
    body: dict[str, Any] = {"s3_key": file.upload_id, "upload_id": file.upload_id, "upload_headers": {}}
    if len(sizes) == 1:
        return {
            **body,
            "method": "simple",
            "presigned_url": platform.urls.upload_url(file.upload_id, 1, file.size),
        }
    urls = [
        {
            "part_number": number,
            "size": size,
            "presigned_url": platform.urls.upload_url(file.upload_id, number, size),
        }
        for number, size in enumerate(sizes, start=1)
    ]
    return {
        **body,
        "method": "multipart",
        "part_size": PART_SIZE,
        "total_parts": len(sizes),
        "presigned_urls": urls,
    }


def complete_file(
    session: Session, platform: Platform, found: EvalImport, path: str, etags: Mapping[int, str] | None
) -> None:
    """Take a sent file in, after checking its bytes against the declaration; repeating it changes nothing."""
    file = _file(session, found, path, lock=True)
    if file.state == "uploaded":
        platform.parts.discard(file.upload_id)  # another upload of the same run was faster
        return
    sizes = plan_parts(file.size)
    platform.parts.check_complete(file.upload_id, sizes, dict(etags) if etags is not None else None)
    stored = platform.parts.assemble(file.upload_id, len(sizes), platform.blobs)
    platform.parts.discard(file.upload_id)
    if stored.sha256 != file.sha256:
        raise InvalidInput(
            f"{path} hashes to {stored.sha256}, not to {file.sha256} as declared; it changed while it was sent.",
            code="HASH_MISMATCH",
        )
    record_blob(session, stored)
    file.state = "uploaded"


def finalize(session: Session, platform: Platform, scope: WorkspaceScope, found: EvalImport) -> None:
    """Make the run of a completely sent import; repeating it changes nothing. Raises Conflict while files are missing."""
    if found.status == "finalized":
        return
    files = files_of(session, found)
    missing = [file.path for file in files if file.state != "uploaded"]
    if missing:
        raise Conflict(
            f"{len(missing)} files have not been uploaded, the first is {missing[0]}.", code="FILES_MISSING"
        )
    run = build_run(session, platform, found, {file.path: file for file in files})
    found.run_id, found.status = run.id, "finalized"


def _file(session: Session, found: EvalImport, path: str, *, lock: bool = False) -> EvalImportFile:
    file = session.get(EvalImportFile, (found.id, path), with_for_update=lock)
    if file is None:
        raise NotFound(f"{path} was not declared when the import was started.")
    return file


def result(session: Session, platform: Platform, scope: WorkspaceScope, found: EvalImport) -> dict[str, Any]:
    """The state of an import on the wire."""
    files = files_of(session, found)
    run = session.get(Run, found.run_id) if found.run_id is not None else None
    done = found.status == "finalized" and run is not None
    return {
        "session_id": found.id,
        "status": found.status,
        "expected_files": len(files),
        "uploaded_files": sum(file.state == "uploaded" for file in files),
        "files": [
            {"path": file.path, "size": file.size, "sha256": file.sha256, "state": file.state}
            for file in files
        ],
        "expires_at": found.expires_at.isoformat(),
        "eval_run_id": run.id if done and run else None,
        "eval_run_name": run.name if done and run else None,
        "platform_url": page_url(platform, scope.workspace.name, run) if done and run else None,
    }

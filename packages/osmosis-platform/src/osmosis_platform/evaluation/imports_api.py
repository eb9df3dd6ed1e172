"""`/api/cli/eval-runs/imports`: uploads of evaluations made on somebody's own machine."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, Field

from osmosis_platform.evaluation import imports
from osmosis_platform.http.scope import PlatformDep, Scope

router = APIRouter(prefix="/imports", tags=["evaluation imports"])

Path = Annotated[str, Field(min_length=1, max_length=1024)]


class Paths(BaseModel):
    """Declared files to get instructions for."""

    paths: Annotated[list[Path], Field(min_length=1, max_length=100)]


class Part(BaseModel):
    """A sent part of a file."""

    part_number: Annotated[int, Field(ge=1, le=10_000)]
    etag: str


class SentFile(BaseModel):
    """A completely sent file."""

    path: Path
    parts: list[Part] | None = None


@router.post("")
def start(scope: Scope, platform: PlatformDep, body: imports.StartImport) -> dict[str, Any]:
    """Begin an import, or take up one that was interrupted."""
    with platform.database.write() as session:
        found = imports.start(session, platform, scope, body)
        return imports.result(session, platform, scope, found)


@router.post("/{session_id}/uploads")
def uploads(session_id: str, scope: Scope, platform: PlatformDep, body: Paths) -> dict[str, Any]:
    """Where to send files that are missing."""
    with platform.database.read() as session:
        found = imports.find_import(session, scope, session_id)
        return {"files": imports.instructions(session, platform, found, body.paths)}


@router.post("/{session_id}/uploads/complete")
def complete(session_id: str, scope: Scope, platform: PlatformDep, body: SentFile) -> dict[str, Any]:
    """A file was sent completely."""
    etags = (
        {part.part_number: part.etag.strip('"') for part in body.parts} if body.parts is not None else None
    )
    with platform.database.write() as session:
        found = imports.find_import(session, scope, session_id)
        imports.complete_file(session, platform, found, body.path, etags)
    return {"path": body.path, "state": "uploaded"}


@router.post("/{session_id}/finalize")
def finalize(session_id: str, scope: Scope, platform: PlatformDep) -> dict[str, Any]:
    """Every file was sent: make the run. Repeating it changes nothing."""
    with platform.database.write() as session:
        found = imports.find_import(session, scope, session_id)
        imports.finalize(session, platform, scope, found)
        return imports.result(session, platform, scope, found)

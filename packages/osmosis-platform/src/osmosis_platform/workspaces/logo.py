"""The logo of a workspace: a small picture of a kind that browsers only draw. SVG is none: it can hold script."""

from __future__ import annotations

from sqlalchemy.orm import Session

from osmosis_platform.accounts.models import User
from osmosis_platform.audit.service import record
from osmosis_platform.context import Platform
from osmosis_platform.errors import InvalidInput
from osmosis_platform.storage.blobs import record_blob
from osmosis_platform.workspaces.models import Workspace

MAX_BYTES = 512 * 1024


def kind_of(content: bytes) -> str | None:
    """The media type that the first bytes tell: PNG, JPEG or WebP; None for anything else, whatever its name says."""
    if content.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if content.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    return None


def set_logo(session: Session, platform: Platform, workspace: Workspace, content: bytes, *, by: User) -> None:
    """Give the workspace a logo, or take it away with empty `content`. Raises InvalidInput."""
    if content:
        kind = kind_of(content)
        if kind is None or len(content) > MAX_BYTES:
            raise InvalidInput(
                f"A logo is a PNG, JPEG or WebP picture of at most {MAX_BYTES // 1024} KB.", field="file"
            )
        stored = platform.blobs.put_bytes(content)
        record_blob(session, stored)
        workspace.logo_sha256, workspace.logo_type = stored.sha256, kind
    else:
        workspace.logo_sha256 = workspace.logo_type = None
    record(
        session, "workspace.logo", workspace.name, user_id=by.id, workspace_id=workspace.id, set=bool(content)
    )

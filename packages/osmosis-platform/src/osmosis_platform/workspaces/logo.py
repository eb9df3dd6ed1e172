"""The logo of a workspace: a small picture of a kind that browsers only draw. SVG is none: it can hold script."""

from __future__ import annotations

from sqlalchemy.orm import Session

from osmosis_platform.accounts.models import User
from osmosis_platform.audit.service import record
from osmosis_platform.context import Platform
from osmosis_platform.errors import InvalidInput
from osmosis_platform.storage.blobs import record_blob
from osmosis_platform.workspaces.models import Workspace
from osmosis_platform.workspaces.pictures import MAX_SIDE, BadPicture, picture_type

MAX_BYTES = 512 * 1024


def set_logo(session: Session, platform: Platform, workspace: Workspace, content: bytes, *, by: User) -> None:
    """Give the workspace a logo, or take it away with empty `content`. Raises InvalidInput."""
    if content:
        kind = _checked_type(content)
        stored = platform.blobs.put_bytes(content)
        record_blob(session, stored)
        workspace.logo_sha256, workspace.logo_type = stored.sha256, kind
    else:
        workspace.logo_sha256 = workspace.logo_type = None
    record(
        session, "workspace.logo", workspace.name, user_id=by.id, workspace_id=workspace.id, set=bool(content)
    )


def _checked_type(content: bytes) -> str:
    rule = f"A logo is a PNG, JPEG or WebP picture of at most {MAX_BYTES // 1024} KB and {MAX_SIDE} x {MAX_SIDE} pixels"
    if len(content) > MAX_BYTES:
        raise InvalidInput(f"{rule}; this file is larger.", field="file")
    try:
        return picture_type(content)
    except BadPicture as error:
        raise InvalidInput(f"{rule}; this file is none: {error}.", field="file") from None

"""Writes down who did what, in the transaction of the deed."""

from __future__ import annotations

from typing import Any

from sqlalchemy.orm import Session

from osmosis_platform.audit.models import AuditEvent


def record(
    session: Session,
    action: str,
    target: str,
    *,
    user_id: str | None,
    workspace_id: str | None = None,
    **details: Any,
) -> None:
    """Note an action (`secret.set`, `member.remove`, ...) on a target; `details` are JSON values and never a secret."""
    session.add(
        AuditEvent(workspace_id=workspace_id, user_id=user_id, action=action, target=target, details=details)
    )

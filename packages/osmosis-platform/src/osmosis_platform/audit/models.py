"""Tables of audit."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from osmosis_platform.db.base import Base, Identified


class AuditEvent(Identified, Base):
    """Who did what to which thing; `details` never holds a secret."""

    __tablename__ = "audit_events"
    workspace_id: Mapped[str | None] = mapped_column(ForeignKey("workspaces.id"), index=True)
    user_id: Mapped[str | None] = mapped_column(ForeignKey("users.id"))
    action: Mapped[str]
    target: Mapped[str]
    details: Mapped[dict[str, Any]] = mapped_column(default=dict)

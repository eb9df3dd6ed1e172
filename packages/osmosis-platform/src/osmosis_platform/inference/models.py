"""Tables of inference."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from osmosis_platform.db.base import Base, Identified


class ApiKey(Identified, Base):
    """A key of the inference endpoint; only its hash is kept."""

    __tablename__ = "api_keys"
    workspace_id: Mapped[str] = mapped_column(ForeignKey("workspaces.id"), index=True)
    name: Mapped[str]
    key_hash: Mapped[str] = mapped_column(unique=True)
    hint: Mapped[str]
    creator_id: Mapped[str] = mapped_column(ForeignKey("users.id"))
    last_used_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]

"""Tables of secrets."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from osmosis_platform.db.base import Base, Identified
from osmosis_platform.db.types import utc_now


class Secret(Identified, Base):
    """An environment secret. `scope` is `workspace` or `user` (then `user_id` is its owner); the value is only ever ciphertext."""

    __tablename__ = "secrets"
    __table_args__ = (UniqueConstraint("workspace_id", "scope", "user_id", "name"),)
    workspace_id: Mapped[str] = mapped_column(ForeignKey("workspaces.id"), index=True)
    scope: Mapped[str]
    user_id: Mapped[str] = mapped_column(default="")
    name: Mapped[str]
    version: Mapped[int] = mapped_column(default=1)
    key_id: Mapped[str]
    nonce: Mapped[bytes]
    ciphertext: Mapped[bytes]
    creator_id: Mapped[str] = mapped_column(ForeignKey("users.id"))
    updater_id: Mapped[str | None] = mapped_column(ForeignKey("users.id"))
    updated_at: Mapped[datetime] = mapped_column(default=utc_now, onupdate=utc_now)
    # When a run got it last.
    last_used_at: Mapped[datetime | None]

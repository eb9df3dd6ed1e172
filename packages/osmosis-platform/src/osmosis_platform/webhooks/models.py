"""Tables of webhooks."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from osmosis_platform.db.base import Base, Identified
from osmosis_platform.db.types import utc_now


class Webhook(Identified, Base):
    """Where a workspace's events go: one address each. The secret that signs them is only ever ciphertext; `hint` is its end."""

    __tablename__ = "webhooks"
    workspace_id: Mapped[str] = mapped_column(ForeignKey("workspaces.id"), unique=True)
    url: Mapped[str]
    events: Mapped[list[Any]]
    enabled: Mapped[bool] = mapped_column(default=True)
    key_id: Mapped[str]
    nonce: Mapped[bytes]
    ciphertext: Mapped[bytes]
    hint: Mapped[str]
    creator_id: Mapped[str] = mapped_column(ForeignKey("users.id"))
    updated_at: Mapped[datetime] = mapped_column(default=utc_now, onupdate=utc_now)


class WebhookDelivery(Identified, Base):
    """One event on its way. `status`: pending, delivered, failed.

    `tries` holds each try: `at` (ISO), `status` (of the answer, or null), `error`, `milliseconds`. `page` is the address of what
    the event is about, without host.
    """

    __tablename__ = "webhook_deliveries"
    __table_args__ = (Index("ix_webhook_deliveries_webhook_created", "webhook_id", "created_at"),)
    webhook_id: Mapped[str] = mapped_column(ForeignKey("webhooks.id"))
    event: Mapped[str]
    subject: Mapped[str]
    page: Mapped[str | None]
    data: Mapped[dict[str, Any]]
    status: Mapped[str] = mapped_column(default="pending")
    tries: Mapped[list[Any]] = mapped_column(default=list)

"""Tables of Hugging Face: tokens of a workspace, and where its checkpoints were uploaded."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from osmosis_platform.db.base import Base, Identified


class HubToken(Identified, Base):
    """A token of a workspace. The value is only ever ciphertext; `account` is whose it is, null where the hub was not asked."""

    __tablename__ = "hub_tokens"
    __table_args__ = (UniqueConstraint("workspace_id", "name"),)
    workspace_id: Mapped[str] = mapped_column(ForeignKey("workspaces.id"), index=True)
    name: Mapped[str]
    account: Mapped[str | None]
    key_id: Mapped[str]
    nonce: Mapped[bytes]
    ciphertext: Mapped[bytes]
    creator_id: Mapped[str] = mapped_column(ForeignKey("users.id"))


class HubUpload(Identified, Base):
    """The latest upload of a LoRA model. `status`: uploading, uploaded, failed.

    `url` is where the last finished upload is; `error` says why the latest one failed. `token_id` is null once the token is deleted.
    """

    __tablename__ = "hub_uploads"
    follows = "run_id"
    model_id: Mapped[str] = mapped_column(ForeignKey("lora_models.id"), unique=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"), index=True)
    token_id: Mapped[str | None] = mapped_column(ForeignKey("hub_tokens.id"))
    repository: Mapped[str]
    private: Mapped[bool]
    status: Mapped[str]
    error: Mapped[str | None]
    url: Mapped[str | None]
    uploader_id: Mapped[str] = mapped_column(ForeignKey("users.id"))
    finished_at: Mapped[datetime | None]

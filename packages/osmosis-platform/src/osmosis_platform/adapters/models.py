"""Tables of adapters."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column, relationship

from osmosis_platform.db.base import Base, Identified
from osmosis_platform.db.types import utc_now


class BaseModel(Identified, Base):
    """A model that can be trained. `path` is a local folder, or null for a Hugging Face name."""

    __tablename__ = "base_models"
    name: Mapped[str] = mapped_column(unique=True)
    path: Mapped[str | None]
    description: Mapped[str | None]
    updated_at: Mapped[datetime] = mapped_column(default=utc_now, onupdate=utc_now)


class LoraModel(Identified, Base):
    """A trained checkpoint. `deployment_status`: null (never deployed), active, inactive."""

    __tablename__ = "lora_models"
    follows = "run_id"
    __table_args__ = (UniqueConstraint("workspace_id", "name"), UniqueConstraint("run_id", "step"))
    workspace_id: Mapped[str] = mapped_column(ForeignKey("workspaces.id"), index=True)
    name: Mapped[str]
    base_model_id: Mapped[str] = mapped_column(ForeignKey("base_models.id"))
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"), index=True)
    step: Mapped[int]
    reward: Mapped[float | None]
    blob_sha256: Mapped[str]
    status: Mapped[str] = mapped_column(default="uploaded")
    deployment_status: Mapped[str | None]
    deployed_at: Mapped[datetime | None]
    deployed_by_id: Mapped[str | None] = mapped_column(ForeignKey("users.id"))
    base_model: Mapped[BaseModel] = relationship()

"""Tables of datasets."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from osmosis_platform.db.base import Base, Identified
from osmosis_platform.db.types import utc_now


class Dataset(Identified, Base):
    """An uploaded file. `status`: uploading, pending, processing, uploaded, error, cancelled.

    `source_sha256` is the file as uploaded (what `download` serves), `rows_sha256` the normalised rows (Parquet).
    """

    __tablename__ = "datasets"
    follows = "id"
    __table_args__ = (Index("ix_datasets_workspace_created", "workspace_id", "created_at"),)
    workspace_id: Mapped[str] = mapped_column(ForeignKey("workspaces.id"))
    name: Mapped[str] = mapped_column(index=True)
    extension: Mapped[str]
    file_size: Mapped[int]
    status: Mapped[str] = mapped_column(default="uploading")
    source_sha256: Mapped[str | None]
    rows_sha256: Mapped[str | None]
    row_count: Mapped[int | None]
    columns: Mapped[list[Any] | None]
    preview: Mapped[list[Any] | None]
    error: Mapped[str | None]
    replaces_id: Mapped[str | None]
    creator_id: Mapped[str] = mapped_column(ForeignKey("users.id"))
    updated_at: Mapped[datetime] = mapped_column(default=utc_now, onupdate=utc_now)
    deleted_at: Mapped[datetime | None]

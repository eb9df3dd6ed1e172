"""Tables of storage."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from osmosis_platform.db.base import Base, Identified
from osmosis_platform.db.types import utc_now


class Blob(Base):
    """Bytes in the blob store, named by their SHA-256."""

    __tablename__ = "blobs"
    sha256: Mapped[str] = mapped_column(primary_key=True)
    size: Mapped[int]
    created_at: Mapped[datetime] = mapped_column(default=utc_now)


class Upload(Identified, Base):
    """An upload in progress of a dataset file. `method`: simple or multipart; `status`: open, completed, aborted."""

    __tablename__ = "uploads"
    dataset_id: Mapped[str] = mapped_column(ForeignKey("datasets.id"), index=True)
    method: Mapped[str]
    size: Mapped[int]
    part_size: Mapped[int]
    total_parts: Mapped[int]
    status: Mapped[str] = mapped_column(default="open")

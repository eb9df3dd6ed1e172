"""What a client sends to download files of a run: names that a manifest gave it."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

MAX_ITEMS = 500


class DownloadItem(BaseModel):
    """A file as its manifest named it."""

    path: Annotated[str, Field(min_length=1, max_length=2048)]
    token: Annotated[str, Field(max_length=2048)] | None = None


class DownloadBody(BaseModel):
    """Files to get addresses for."""

    items: Annotated[list[DownloadItem], Field(min_length=1, max_length=MAX_ITEMS)]

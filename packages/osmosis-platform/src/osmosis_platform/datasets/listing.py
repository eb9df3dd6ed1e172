"""Which datasets a list shows and in what order, and the earlier versions of one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from osmosis_platform.accounts.models import User
from osmosis_platform.datasets.models import Dataset
from osmosis_platform.http.paging import Page, page_of
from osmosis_platform.runs.models import Run
from osmosis_platform.web.addresses import query_of

Sort = Literal["newest", "oldest", "name", "rows", "size"]
STATUSES = ("uploading", "pending", "processing", "uploaded", "error", "cancelled")
VERSIONS_SHOWN = 20


@dataclass(frozen=True, slots=True)
class DatasetFilter:
    """Empty text means all. `q` is part of a name."""

    q: str = ""
    status: str = ""
    sort: Sort = "newest"

    def query(self) -> str:
        """The filter as the beginning of an address's query."""
        return query_of({"q": self.q, "status": self.status, "sort": self.sort}, sort="newest")

    def conditions(self, workspace_id: str) -> list[ColumnElement[bool]]:
        """The filter over `Dataset`."""
        found = [Dataset.workspace_id == workspace_id, Dataset.deleted_at.is_(None)]
        if self.q:
            found.append(Dataset.name.icontains(self.q, autoescape=True))
        if self.status:
            found.append(Dataset.status == self.status)
        return found


ORDERS: dict[Sort, tuple[Any, ...]] = {
    "newest": (Dataset.created_at.desc(), Dataset.id),
    "oldest": (Dataset.created_at, Dataset.id),
    "name": (Dataset.name, Dataset.id),
    "rows": (Dataset.row_count.desc().nulls_last(), Dataset.id),
    "size": (Dataset.file_size.desc(), Dataset.id),
}


def filtered_datasets(
    session: Session, workspace_id: str, chosen: DatasetFilter, page: Page
) -> tuple[list[Dataset], int]:
    """A page of the datasets that the filter leaves, and how many these are."""
    query = select(Dataset).where(*chosen.conditions(workspace_id)).order_by(*ORDERS[chosen.sort])
    return page_of(session, query, page)


def versions(session: Session, dataset: Dataset) -> list[dict[str, Any]]:
    """Every file that was ready under this name, newest first, with how many runs used it."""
    used = (
        select(func.count())
        .select_from(Run)
        .where(Run.dataset_id == Dataset.id)
        .correlate(Dataset)
        .scalar_subquery()
    )
    query = (
        select(Dataset, User.name, used)
        .outerjoin(User, User.id == Dataset.creator_id)
        .where(
            Dataset.workspace_id == dataset.workspace_id,
            Dataset.name == dataset.name,
            Dataset.status == "uploaded",
        )
        .order_by(Dataset.created_at.desc())
        .limit(VERSIONS_SHOWN)
    )
    return [
        {
            "id": version.id,
            "created_at": version.created_at.isoformat(),
            "deleted_at": version.deleted_at.isoformat() if version.deleted_at else None,
            "creator_name": creator,
            "rows": version.row_count,
            "size": version.file_size,
            "runs": runs,
            "current": version.deleted_at is None,
        }
        for version, creator, runs in session.execute(query)
    ]

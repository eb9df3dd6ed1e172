"""Which runs a list shows and in what order; all of it is in the address of the page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlencode

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from osmosis_platform.datasets.models import Dataset
from osmosis_platform.http.paging import Page
from osmosis_platform.runs.models import Run
from osmosis_platform.runs.service import Kind

Sort = Literal["newest", "oldest", "reward", "name"]
STATUSES = ("pending", "running", "finished", "failed", "stopped", "crashed")
# A selection offers at most so many values, the most recently used ones.
CHOICES = 100


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Empty text means all. `q` is part of a name; `rollout`, `model` and `dataset` are whole names."""

    q: str = ""
    status: str = ""
    rollout: str = ""
    model: str = ""
    dataset: str = ""
    sort: Sort = "newest"

    @property
    def chosen(self) -> dict[str, str]:
        """What differs from a list of everything."""
        values = {
            "q": self.q,
            "status": self.status,
            "rollout": self.rollout,
            "model": self.model,
            "dataset": self.dataset,
            "sort": "" if self.sort == "newest" else self.sort,
        }
        return {key: value for key, value in values.items() if value}

    def query(self) -> str:
        """The filter as the beginning of an address's query: empty, or `status=failed&`."""
        return f"{urlencode(self.chosen)}&" if self.chosen else ""

    def conditions(self, workspace_id: str, kind: Kind) -> list[ColumnElement[bool]]:
        """The filter over `Run`."""
        found: list[ColumnElement[bool]] = [Run.workspace_id == workspace_id, Run.kind == kind]
        if self.q:
            found.append(Run.name.icontains(self.q, autoescape=True))
        if self.status:
            found.append(Run.status == self.status)
        if self.rollout:
            found.append(Run.rollout_name == self.rollout)
        if self.model:
            found.append(Run.model_path == self.model)
        if self.dataset:
            named = select(Dataset.id).where(
                Dataset.workspace_id == workspace_id, Dataset.name == self.dataset
            )
            found.append(Run.dataset_id.in_(named))
        return found

    def order(self) -> list[Any]:
        """The order; runs without reward come last."""
        orders: dict[Sort, list[Any]] = {
            "newest": [Run.created_at.desc(), Run.id],
            "oldest": [Run.created_at, Run.id],
            "reward": [Run.reward.desc().nulls_last(), Run.created_at.desc(), Run.id],
            "name": [Run.name, Run.id],
        }
        return orders[self.sort]


def filtered_runs(
    session: Session, workspace_id: str, kind: Kind, chosen: RunFilter, page: Page
) -> tuple[list[Run], int]:
    """A page of the runs that the filter leaves, and how many these are."""
    mine = chosen.conditions(workspace_id, kind)
    total = session.scalar(select(func.count()).select_from(Run).where(*mine)) or 0
    query = select(Run).where(*mine).order_by(*chosen.order()).offset(page.offset).limit(page.limit)
    return list(session.scalars(query)), total


def choices(session: Session, workspace_id: str, kind: Kind) -> dict[str, list[str]]:
    """The rollouts, models and datasets that runs of this kind used, for the filter to offer."""
    mine = (Run.workspace_id == workspace_id, Run.kind == kind)

    def values(column: Any, *joined: Any) -> list[str]:
        query = select(column).select_from(Run).where(*mine)
        for target in joined:
            query = query.join(target, target.id == Run.dataset_id)
        return sorted(
            session.scalars(query.group_by(column).order_by(func.max(Run.created_at).desc()).limit(CHOICES))
        )

    return {
        "rollout": values(Run.rollout_name),
        "model": values(Run.model_path),
        "dataset": values(Dataset.name, Dataset),
    }

"""Which LoRA models a list shows and in what order; all of it is in the address of the page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session, joinedload

from osmosis_platform.adapters.models import BaseModel, LoraModel
from osmosis_platform.http.paging import Page, page_of
from osmosis_platform.runs.models import Run
from osmosis_platform.web.addresses import query_of

Sort = Literal["newest", "oldest", "reward", "name"]
DEPLOYMENTS = ("active", "inactive", "never")
OFFERED = 100
ORDERS: dict[Sort, tuple[Any, ...]] = {
    "newest": (LoraModel.created_at.desc(), LoraModel.step.desc(), LoraModel.id),
    "oldest": (LoraModel.created_at, LoraModel.step, LoraModel.id),
    "reward": (LoraModel.reward.desc().nulls_last(), LoraModel.created_at.desc(), LoraModel.id),
    "name": (LoraModel.name, LoraModel.id),
}


@dataclass(frozen=True, slots=True)
class ModelFilter:
    """Empty text means all. `q` is part of a name; `base` a whole name; `run` a training run's id or name."""

    q: str = ""
    deployment: str = ""
    base: str = ""
    run: str = ""
    sort: Sort = "newest"

    def query(self) -> str:
        """The filter as the beginning of an address's query."""
        chosen = {"q": self.q, "deployment": self.deployment, "base": self.base, "run": self.run}
        return query_of({**chosen, "sort": self.sort}, sort="newest")

    def conditions(self, workspace_id: str) -> list[ColumnElement[bool]]:
        """The filter over `LoraModel`, joined with its base model and run."""
        found: list[ColumnElement[bool]] = [LoraModel.workspace_id == workspace_id]
        if self.q:
            found.append(LoraModel.name.icontains(self.q, autoescape=True))
        if self.deployment == "never":
            found.append(LoraModel.deployment_status.is_(None))
        elif self.deployment:
            found.append(LoraModel.deployment_status == self.deployment)
        if self.base:
            found.append(BaseModel.name == self.base)
        if self.run:
            found.append((Run.id == self.run) | (Run.name == self.run))
        return found


def filtered_models(
    session: Session, workspace_id: str, chosen: ModelFilter, page: Page
) -> tuple[list[LoraModel], int]:
    """A page of the LoRA models that the filter leaves, and how many these are."""
    query = (
        select(LoraModel)
        .options(joinedload(LoraModel.base_model))
        .join(BaseModel, BaseModel.id == LoraModel.base_model_id)
        .join(Run, Run.id == LoraModel.run_id)
        .where(*chosen.conditions(workspace_id))
        .order_by(*ORDERS[chosen.sort])
    )
    return page_of(session, query, page)


def base_names(session: Session, workspace_id: str) -> list[str]:
    """The base models that the workspace's LoRA models have, for the filter to offer."""
    query = select(BaseModel.name).join(LoraModel, LoraModel.base_model_id == BaseModel.id)
    return list(
        session.scalars(
            query.where(LoraModel.workspace_id == workspace_id)
            .distinct()
            .order_by(BaseModel.name)
            .limit(OFFERED)
        )
    )

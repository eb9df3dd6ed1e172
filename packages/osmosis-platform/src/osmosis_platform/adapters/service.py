"""LoRA models and their deployment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import func, or_, select
from sqlalchemy.orm import Session, joinedload

from osmosis_platform.accounts.models import User
from osmosis_platform.adapters.files import adapter_folder
from osmosis_platform.adapters.models import LoraModel
from osmosis_platform.audit.service import record
from osmosis_platform.context import Platform
from osmosis_platform.db.types import utc_now
from osmosis_platform.errors import Conflict, NotFound
from osmosis_platform.http.paging import Page
from osmosis_platform.runs.models import Run

DEPLOYMENT_KEYS = frozenset({"deployment_status", "deployed_at", "deployed_by"})


def find_lora(session: Session, workspace_id: str, name_or_id: str) -> LoraModel:
    """The LoRA model of that name, id or inference name in the workspace; raises NotFound."""
    name = name_or_id.rpartition(":")[2]
    query = (
        select(LoraModel)
        .options(joinedload(LoraModel.base_model))
        .where(
            LoraModel.workspace_id == workspace_id, or_(LoraModel.name == name, LoraModel.id == name_or_id)
        )
    )
    model = session.scalar(query.order_by(LoraModel.id == name_or_id).limit(1))
    if model is None or (":" in name_or_id and inference_name(model) != name_or_id):
        raise NotFound(f"LoRA model not found: {name_or_id}")
    return model


def list_lora(session: Session, workspace_id: str, page: Page) -> tuple[list[LoraModel], int]:
    """A page of LoRA models, newest first, and how many there are."""
    mine = LoraModel.workspace_id == workspace_id
    total = session.scalar(select(func.count()).select_from(LoraModel).where(mine)) or 0
    query = (
        select(LoraModel)
        .options(joinedload(LoraModel.base_model))
        .where(mine)
        .order_by(LoraModel.created_at.desc(), LoraModel.step.desc(), LoraModel.id)
    )
    return list(session.scalars(query.offset(page.offset).limit(page.limit))), total


def active_models(session: Session, workspace_id: str | None = None) -> list[LoraModel]:
    """Deployed LoRA models, of one workspace or of all."""
    query = (
        select(LoraModel)
        .options(joinedload(LoraModel.base_model))
        .where(LoraModel.deployment_status == "active")
    )
    if workspace_id is not None:
        query = query.where(LoraModel.workspace_id == workspace_id)
    return list(session.scalars(query.order_by(LoraModel.created_at)))


def count_active(session: Session, workspace_id: str) -> int:
    """How many LoRA models of the workspace are deployed."""
    query = select(func.count()).select_from(LoraModel)
    return (
        session.scalar(
            query.where(LoraModel.workspace_id == workspace_id, LoraModel.deployment_status == "active")
        )
        or 0
    )


def deploy(session: Session, platform: Platform, user: User, model: LoraModel) -> bool:
    """Make a LoRA model answer at the inference endpoint; False when it does already.

    Raises Conflict when the workspace has no deployment left or this platform serves no models, InvalidInput or NotFound when the
    files are no adapter.
    """
    if not platform.settings.serve_models:
        raise Conflict(
            "This platform serves no models: its administrator turned that off.", code="NOT_SERVED"
        )
    if model.deployment_status == "active":
        return False
    allowed = platform.settings.max_active_deployments
    if count_active(session, model.workspace_id) >= allowed:
        raise Conflict(
            f"All {allowed} deployments of this workspace are in use. Undeploy one first: osmosis model undeploy <name>",
            code="DEPLOYMENT_QUOTA_REACHED",
        )
    adapter_folder(platform, model)
    model.deployment_status = "active"
    model.deployed_at, model.deployed_by_id = utc_now(), user.id
    record(session, "model.deploy", model.name, user_id=user.id, workspace_id=model.workspace_id)
    return True


def undeploy(session: Session, user: User, model: LoraModel) -> bool:
    """Take a LoRA model off the inference endpoint; False when it was not on it."""
    if model.deployment_status != "active":
        return False
    model.deployment_status = "inactive"
    record(session, "model.undeploy", model.name, user_id=user.id, workspace_id=model.workspace_id)
    return True


def inference_name(model: LoraModel) -> str:
    """What callers of the inference endpoint put into `model`."""
    return f"{model.base_model.name}:{model.name}"


def served_name(model: LoraModel) -> str:
    """The name inside the inference server. Ids keep models of two workspaces apart; names are only unique in one."""
    return model.id


def lora_items(session: Session, models: Sequence[LoraModel]) -> list[dict[str, Any]]:
    """The models on the wire, as lists show them."""
    runs = {
        row.id: row.name
        for row in session.execute(
            select(Run.id, Run.name).where(Run.id.in_({model.run_id for model in models}))
        )
    }
    deployers = {model.deployed_by_id for model in models if model.deployed_by_id}
    people: dict[str, str] = {
        row.id: row.name for row in session.execute(select(User.id, User.name).where(User.id.in_(deployers)))
    }
    return [
        {
            "id": model.id,
            "model_name": model.name,
            "base_model": model.base_model.name,
            "training_run_name": runs.get(model.run_id),
            "training_run_id": model.run_id,
            "checkpoint_step": model.step,
            "reward": model.reward,
            "created_at": model.created_at.isoformat(),
            "deployment_status": model.deployment_status,
            "deployed_at": model.deployed_at.isoformat() if model.deployed_at else None,
            "deployed_by": people.get(model.deployed_by_id) if model.deployed_by_id else None,
        }
        for model in models
    ]

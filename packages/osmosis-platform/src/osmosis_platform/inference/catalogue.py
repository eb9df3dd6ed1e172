"""Which models a workspace may call: every base model, and its own deployed LoRA models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from osmosis_platform.adapters.base_models import find_base_model
from osmosis_platform.adapters.models import BaseModel
from osmosis_platform.adapters.service import active_models, inference_name, served_name
from osmosis_platform.errors import NotFound


@dataclass(frozen=True, slots=True)
class Target:
    """A callable model: its public name, and its name inside the inference server."""

    public: str
    internal: str
    base: BaseModel


def targets(session: Session, workspace_id: str) -> list[tuple[Target, int]]:
    """Every callable model with the moment (Unix seconds) it became so."""
    found = [
        (Target(model.name, model.name, model), int(model.created_at.timestamp()))
        for model in session.scalars(
            select(BaseModel).where(BaseModel.path.is_not(None)).order_by(BaseModel.name)
        )
    ]
    for lora in active_models(session, workspace_id):
        base = lora.base_model
        target = Target(inference_name(lora), f"{base.name}:{served_name(lora)}", base)
        found.append((target, int((lora.deployed_at or lora.created_at).timestamp())))
    return found


def find_target(session: Session, workspace_id: str, name: str) -> Target:
    """The model a caller named. Raises NotFound, for a LoRA model of another workspace like for one that does not exist."""
    base = find_base_model(session, name)
    if base is not None and base.path is not None:  # one from a hub is here once a run has fetched it
        return Target(name, base.name, base)
    for lora in active_models(session, workspace_id):
        if name in (inference_name(lora), lora.name):
            return Target(name, f"{lora.base_model.name}:{served_name(lora)}", lora.base_model)
    raise NotFound(
        f"The model {name!r} does not exist here or is not deployed. GET /v1/models lists those you can call.",
        code="model_not_found",
        field="model",
    )


def models_body(session: Session, workspace_id: str) -> dict[str, Any]:
    """The answer of `GET /v1/models`."""
    return {
        "object": "list",
        "data": [
            {"id": target.public, "object": "model", "created": created, "owned_by": "osmosis"}
            for target, created in targets(session, workspace_id)
        ],
    }

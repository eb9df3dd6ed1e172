"""`/api/cli/models`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fastapi import APIRouter
from sqlalchemy.orm import Session

from osmosis_platform.adapters import service
from osmosis_platform.adapters.base_models import base_model, list_base_models, on_hub
from osmosis_platform.adapters.model_files import model_facts
from osmosis_platform.adapters.models import BaseModel, LoraModel
from osmosis_platform.context import Platform
from osmosis_platform.http.paging import PageQuery
from osmosis_platform.http.scope import PlatformDep, Scope
from osmosis_platform.hugging_face import uploads

router = APIRouter(prefix="/api/cli/models", tags=["models"])


@router.get("/base")
def list_base(scope: Scope, platform: PlatformDep, page: PageQuery) -> dict[str, Any]:
    """A page of base models."""
    with platform.database.read() as session:
        models, total = list_base_models(session, page)
    return page.body("models", [_base_item(model) for model in models], total)


@router.get("/base/{name_or_path}")
def get_base(name_or_path: str, scope: Scope, platform: PlatformDep) -> dict[str, Any]:
    """One base model by name, folder or id."""
    with platform.database.read() as session:
        model = base_model(session, name_or_path)
    namespace = model.name.rpartition("/")[0] or None
    return {
        **_base_item(model),
        **(model_facts(Path(model.path)) if model.path is not None else {}),
        "namespace": namespace,
        "description": model.description,
        "hf_url": f"https://huggingface.co/{model.name}" if on_hub(model) else None,
        "platform_url": f"{platform.settings.resolved_public_url}/{scope.workspace.name}/models",
        "is_internal_user": False,
    }


def _base_item(model: BaseModel) -> dict[str, Any]:
    return {
        "id": model.id,
        "model_name": model.name,
        "base_model": model.name,
        "creator_name": None,
        "created_at": model.created_at.isoformat(),
        "updated_at": model.updated_at.isoformat(),
    }


@router.get("/lora")
def list_lora(scope: Scope, platform: PlatformDep, page: PageQuery) -> dict[str, Any]:
    """A page of LoRA models and how many of the workspace's deployments are used."""
    with platform.database.read() as session:
        models, total = service.list_lora(session, scope.workspace.id, page)
        body = page.body("models", _lora_items(platform, session, models), total)
        if platform.settings.serve_models:
            body["active_deployments"] = service.count_active(session, scope.workspace.id)
            body["max_active_deployments"] = platform.settings.max_active_deployments
    return body


@router.get("/{name}")
def get_lora(name: str, scope: Scope, platform: PlatformDep) -> dict[str, Any]:
    """One LoRA model by name or id."""
    with platform.database.read() as session:
        model = service.find_lora(session, scope.workspace.id, name)
        return {
            **_lora_items(platform, session, [model])[0],
            **uploads.facts(session, uploads.latest(session, model.id)),
            **({"inference_model": service.inference_name(model)} if platform.settings.serve_models else {}),
            "platform_url": f"{platform.settings.resolved_public_url}/{scope.workspace.name}/models/{model.id}",
            "is_internal_user": False,
        }


def _lora_items(platform: Platform, session: Session, models: Sequence[LoraModel]) -> list[dict[str, Any]]:
    """The models on the wire. Clients show deployments when their keys are there, so these are absent where nothing is served."""
    items = service.lora_items(session, models)
    if platform.settings.serve_models:
        return items
    return [{k: v for k, v in item.items() if k not in service.DEPLOYMENT_KEYS} for item in items]


@router.post("/{name}/deploy")
def deploy(name: str, scope: Scope, platform: PlatformDep) -> dict[str, Any]:
    """Serve a LoRA model at the inference endpoint; repeating it changes nothing."""
    with platform.database.write() as session:
        model = service.find_lora(session, scope.workspace.id, name)
        service.deploy(session, platform, scope.user, model)
        body = _state(model.id, model.name, "active")
    _tell_inference_server(platform)
    return body


@router.post("/{name}/undeploy")
def undeploy(name: str, scope: Scope, platform: PlatformDep) -> dict[str, Any]:
    """Stop serving a LoRA model; repeating it changes nothing."""
    with platform.database.write() as session:
        model = service.find_lora(session, scope.workspace.id, name)
        service.undeploy(session, scope.user, model)
        body = _state(model.id, model.name, "inactive")
    _tell_inference_server(platform)
    return body


def _state(model_id: str, name: str, status: str) -> dict[str, Any]:
    return {"id": model_id, "model_name": name, "status": status}


def _tell_inference_server(platform: Platform) -> None:
    # The database says what is deployed; a running server follows it now, one that starts later reads it then.
    if platform.supervisor is not None:
        platform.supervisor.inference.sync_soon()

"""The models page: LoRA models with their deployment, base models, how to call one."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse
from sqlalchemy import select

from osmosis_platform.adapters import service
from osmosis_platform.adapters.models import BaseModel, LoraModel
from osmosis_platform.http.scope import PlatformDep
from osmosis_platform.runs.models import Run
from osmosis_platform.web.pages import render
from osmosis_platform.web.viewer import Csrf, ViewerDep, page_at

router = APIRouter(include_in_schema=False)
MAX_BASE = 200


@router.get("/{workspace}/models")
def models_page(
    request: Request, platform: PlatformDep, viewer: ViewerDep, offset: Annotated[int, Query(ge=0)] = 0
) -> Response:
    """LoRA models, newest first, and base models."""
    page = page_at(offset)
    with platform.database.read() as session:
        found, total = service.list_lora(session, viewer.workspace_id, page)
        runs = {m.run_id: session.get(Run, m.run_id) for m in found}
        active = service.active_models(session, viewer.workspace_id)
        bases = session.scalars(select(BaseModel).order_by(BaseModel.name).limit(MAX_BASE))
        data = {
            "lora_models": [_lora(m, runs[m.run_id]) for m in found],
            "base_models": [
                {
                    "id": b.id,
                    "name": b.name,
                    "description": b.description,
                    "created_at": b.created_at.isoformat(),
                }
                for b in bases
            ],
            "active_deployments": len(active),
            "max_active_deployments": platform.settings.max_active_deployments,
            "example_model": service.inference_name(active[-1]) if active else None,
            "inference_url": platform.settings.resolved_public_url,
            "page": {"limit": page.limit, "offset": page.offset, "total": total},
        }
    return render(request, "models.html", data, viewer=viewer, room="models")


def _lora(model: LoraModel, run: Run | None) -> dict[str, Any]:
    return {
        "id": model.id,
        "model_name": model.name,
        "base_model": model.base_model.name,
        "training_run_name": run.name if run else None,
        "training_run_id": model.run_id,
        "checkpoint_step": model.step,
        "reward": model.reward,
        "deployment_status": model.deployment_status,
        "created_at": model.created_at.isoformat(),
    }


@router.post("/{workspace}/models/{model_id}/{action}", dependencies=[Csrf])
def change_deployment(
    platform: PlatformDep, viewer: ViewerDep, model_id: str, action: Literal["deploy", "undeploy"]
) -> Response:
    """Deploy or undeploy a LoRA model."""
    with platform.database.write() as session:
        model = service.find_lora(session, viewer.workspace_id, model_id)
        if action == "deploy":
            service.deploy(session, platform, viewer.user, model)
        else:
            service.undeploy(session, viewer.user, model)
    if platform.supervisor is not None:
        platform.supervisor.inference.sync_soon()
    return RedirectResponse(f"/{viewer.workspace}/models", status_code=303)

"""Pages of models: LoRA models with their deployment, base models, and one model with how to call it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Form, Query, Request, Response
from fastapi.responses import RedirectResponse
from sqlalchemy import func, select

from osmosis_platform.accounts.views import safe_target
from osmosis_platform.adapters import listing, service
from osmosis_platform.adapters.models import BaseModel, LoraModel
from osmosis_platform.errors import NotFound
from osmosis_platform.http.paging import Offset
from osmosis_platform.http.scope import PlatformDep
from osmosis_platform.hugging_face import tokens, uploads
from osmosis_platform.runs.models import Run
from osmosis_platform.web.pages import render
from osmosis_platform.web.viewer import Csrf, ViewerDep, page_at

router = APIRouter(include_in_schema=False)
MAX_BASE = 200


@router.get("/{workspace}/models")
def models_page(
    request: Request,
    platform: PlatformDep,
    viewer: ViewerDep,
    offset: Offset = 0,
    q: Annotated[str, Query(max_length=200)] = "",
    deployment: Annotated[str, Query(max_length=40)] = "",
    base: Annotated[str, Query(max_length=500)] = "",
    run: Annotated[str, Query(max_length=200)] = "",
    sort: listing.Sort = "newest",
) -> Response:
    """LoRA models (`q`, `deployment`, `base` and `run` choose, `sort` orders them) and base models."""
    page = page_at(offset)
    chosen = listing.ModelFilter(q.strip(), deployment, base, run, sort)
    with platform.database.read() as session:
        found, total = listing.filtered_models(session, viewer.workspace_id, chosen, page)
        runs = {m.run_id: session.get(Run, m.run_id) for m in found}
        bases = session.scalars(select(BaseModel).order_by(BaseModel.name).limit(MAX_BASE))
        data = {
            "lora_models": [_lora(m, runs[m.run_id]) for m in found],
            "base_models": [
                {
                    "id": b.id,
                    "name": b.name,
                    "description": b.description,
                    "created_at": b.created_at.isoformat(),
                    "callable": b.path is not None,
                }
                for b in bases
            ],
            "active_deployments": service.count_active(session, viewer.workspace_id),
            "max_active_deployments": platform.settings.max_active_deployments,
            "serves": platform.settings.serve_models,
            "page": {"limit": page.limit, "offset": page.offset, "total": total},
            "filter": {**asdict(chosen), "query": chosen.query()},
            "choices": {
                "deployment": list(listing.DEPLOYMENTS),
                "base": listing.base_names(session, viewer.workspace_id),
            },
        }
    path = f"/{viewer.workspace}/models"
    return render(request, "models.html", data, viewer=viewer, room="models", path=path)


@router.get("/{workspace}/models/{name_or_id}")
def model_page(request: Request, platform: PlatformDep, viewer: ViewerDep, name_or_id: str) -> Response:
    """One LoRA model: where it comes from, its deployment, and how programs call it."""
    with platform.database.read() as session:
        model = service.find_lora(session, viewer.workspace_id, name_or_id)
        run = session.get(Run, model.run_id)
        siblings = session.scalar(
            select(func.count()).select_from(LoraModel).where(LoraModel.run_id == model.run_id)
        )
        data = {
            "model": {
                **_lora(model, run),
                "deployed_at": model.deployed_at.isoformat() if model.deployed_at else None,
                "inference_model": service.inference_name(model),
                "checkpoints_of_run": siblings,
                "upload": uploads.page_facts(session, uploads.latest(session, model.id)),
            },
            "hub_tokens": [
                {"id": token.id, "name": token.name, "account": token.account}
                for token in session.scalars(tokens.list_query(viewer.workspace_id))
            ],
            "inference_url": f"{platform.settings.resolved_public_url}/v1",
            "serves": platform.settings.serve_models,
        }
    return render(request, "model.html", data, viewer=viewer, room="models")


@router.get("/{workspace}/models/{name_or_id}/adapter.tar")
def export_adapter(platform: PlatformDep, viewer: ViewerDep, name_or_id: str) -> Response:
    """The adapter as a tar of its folder in PEFT format, under the model's name: to a signed address that serves it."""
    with platform.database.read() as session:
        model = service.find_lora(session, viewer.workspace_id, name_or_id)
        if not platform.blobs.exists(model.blob_sha256):
            raise NotFound(f"The files of {model.name} are no longer stored.")
        target = platform.urls.download_url(model.blob_sha256, f"{model.name}.tar")
    return RedirectResponse(target, status_code=303, headers={"Cache-Control": "no-store"})


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
    platform: PlatformDep,
    viewer: ViewerDep,
    model_id: str,
    action: Literal["deploy", "undeploy"],
    back: Annotated[str, Form()] = "",
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
    return RedirectResponse(safe_target(back or f"/{viewer.workspace}/models"), status_code=303)

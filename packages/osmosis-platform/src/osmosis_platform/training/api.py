"""`/api/cli/training-runs`."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from osmosis_platform.http.scope import PlatformDep, Scope
from osmosis_platform.runs.routes import RunFaces, add_run_routes
from osmosis_platform.runs.service import find_run
from osmosis_platform.training import service

router = APIRouter(prefix="/api/cli/training-runs", tags=["training runs"])

add_run_routes(
    router,
    RunFaces("train", "training_runs", service.submit, service.list_item, service.detail, service.metrics),
)


@router.get("/{name_or_id}/checkpoints")
def get_checkpoints(name_or_id: str, scope: Scope, platform: PlatformDep) -> dict[str, Any]:
    """The LoRA models that the run saved."""
    with platform.database.read() as session:
        return service.checkpoints(session, find_run(session, scope.workspace.id, "train", name_or_id))

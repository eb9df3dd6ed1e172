"""`/api/cli/eval-runs`."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import AfterValidator, BaseModel

from osmosis_ai.config.names import variable_problem
from osmosis_platform.evaluation import downloads, service
from osmosis_platform.evaluation.imports_api import router as imports_router
from osmosis_platform.evaluation.results import metrics
from osmosis_platform.http.downloads import DownloadBody
from osmosis_platform.http.scope import PlatformDep, Scope
from osmosis_platform.runs.routes import RunFaces, add_run_routes
from osmosis_platform.runs.service import find_run

router = APIRouter(prefix="/api/cli/eval-runs", tags=["evaluation runs"])
router.include_router(imports_router)


def _variable(value: str) -> str:
    problem = variable_problem(value)
    if problem is not None:
        raise ValueError(problem)
    return value


class RetryBody(BaseModel):
    """Secret values that were given for the run only."""

    secrets: dict[str, Annotated[str, AfterValidator(_variable)]] = {}


add_run_routes(
    router,
    RunFaces("eval", "eval_runs", service.submit, service.list_item, service.detail, metrics),
)


@router.get("/{name_or_id}/samples/manifest")
def get_manifest(
    name_or_id: str, scope: Scope, platform: PlatformDep, types: str | None = None, rows: str | None = None
) -> dict[str, Any]:
    """Every downloadable file of the chosen types."""
    chosen, selected = downloads.parse_types(types), downloads.RowFilter.parse(rows)
    with platform.database.read() as session:
        run = find_run(session, scope.workspace.id, "eval", name_or_id)
    return downloads.manifest(platform, run.id, chosen, selected)


@router.post("/{name_or_id}/samples/download-urls")
def post_download_urls(
    name_or_id: str, scope: Scope, platform: PlatformDep, body: DownloadBody
) -> dict[str, Any]:
    """Signed addresses of files of a manifest."""
    with platform.database.read() as session:
        run = find_run(session, scope.workspace.id, "eval", name_or_id)
    return downloads.download_urls(platform, run.id, [item.model_dump() for item in body.items])


@router.post("/{name_or_id}/retry")
def retry(
    name_or_id: str, scope: Scope, platform: PlatformDep, body: RetryBody | None = None
) -> dict[str, Any]:
    """Run failed and missing attempts of an ended evaluation again."""
    with platform.database.write() as session:
        run = find_run(session, scope.workspace.id, "eval", name_or_id)
        return service.retry(session, platform, scope, run, body.secrets if body else {})

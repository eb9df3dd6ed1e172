"""`/api/cli/eval-runs`."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body
from pydantic import BaseModel, Field

from osmosis_platform.evaluation import downloads, service
from osmosis_platform.evaluation.imports_api import router as imports_router
from osmosis_platform.evaluation.results import metrics
from osmosis_platform.http.logs import LogQuery, logs_page
from osmosis_platform.http.paging import PageQuery
from osmosis_platform.http.scope import PlatformDep, Scope
from osmosis_platform.runs.facts import with_facts
from osmosis_platform.runs.service import find_run, list_runs, page_url, request_stop
from osmosis_platform.runs.submit import submitted_body

router = APIRouter(prefix="/api/cli/eval-runs", tags=["evaluation runs"])
router.include_router(imports_router)


class RetryBody(BaseModel):
    """Secret values that were given for the run only."""

    secrets: dict[str, str] = {}


class DownloadItem(BaseModel):
    """A file as its manifest named it."""

    path: Annotated[str, Field(min_length=1, max_length=2048)]
    token: str | None = None


class DownloadBody(BaseModel):
    """Files to get addresses for."""

    items: list[DownloadItem]


@router.post("", status_code=201)
def submit(scope: Scope, platform: PlatformDep, body: Annotated[Any, Body()]) -> dict[str, Any]:
    """Start an evaluation."""
    with platform.database.write() as session:
        run = service.submit(session, platform, scope, body)
        return submitted_body(platform, scope.workspace.name, run)


@router.get("")
def list_eval_runs(scope: Scope, platform: PlatformDep, page: PageQuery) -> dict[str, Any]:
    """A page of evaluations, newest first."""
    with platform.database.read() as session:
        runs, total = list_runs(session, scope.workspace.id, "eval", page)
        items = [
            service.list_item(facts, page_url(platform, scope.workspace.name, facts.run))
            for facts in with_facts(session, runs)
        ]
    return page.body("eval_runs", items, total)


@router.get("/{name_or_id}")
def get_eval_run(name_or_id: str, scope: Scope, platform: PlatformDep) -> dict[str, Any]:
    """One evaluation by name or id."""
    with platform.database.read() as session:
        run = find_run(session, scope.workspace.id, "eval", name_or_id)
        return service.detail(with_facts(session, [run])[0], page_url(platform, scope.workspace.name, run))


@router.get("/{name_or_id}/metrics")
def get_metrics(name_or_id: str, scope: Scope, platform: PlatformDep) -> dict[str, Any]:
    """Results so far."""
    with platform.database.read() as session:
        return metrics(session, find_run(session, scope.workspace.id, "eval", name_or_id))


@router.get("/{name_or_id}/logs")
def get_logs(name_or_id: str, scope: Scope, platform: PlatformDep, window: LogQuery) -> dict[str, Any]:
    """A page of the run's log."""
    with platform.database.read() as session:
        run = find_run(session, scope.workspace.id, "eval", name_or_id)
        return logs_page(session, run.id, window.limit, window.direction, window.cursor)


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


@router.post("/{name_or_id}/stop")
def stop(name_or_id: str, scope: Scope, platform: PlatformDep) -> dict[str, Any]:
    """Ask the run to stop; finished attempts stay. Repeating it changes nothing."""
    with platform.database.write() as session:
        run = find_run(session, scope.workspace.id, "eval", name_or_id)
        return {"id": run.id, "name": run.name, "status": request_stop(session, platform, run)}


@router.post("/{name_or_id}/retry")
def retry(
    name_or_id: str, scope: Scope, platform: PlatformDep, body: RetryBody | None = None
) -> dict[str, Any]:
    """Run failed and missing attempts of an ended evaluation again."""
    with platform.database.write() as session:
        run = find_run(session, scope.workspace.id, "eval", name_or_id)
        return service.retry(session, platform, scope, run, body.secrets if body else {})

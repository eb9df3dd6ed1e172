"""`/api/cli/training-runs`."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body

from osmosis_platform.http.logs import LogQuery, logs_page
from osmosis_platform.http.paging import PageQuery
from osmosis_platform.http.scope import PlatformDep, Scope
from osmosis_platform.runs.facts import with_facts
from osmosis_platform.runs.service import find_run, list_runs, page_url, request_stop
from osmosis_platform.runs.submit import submitted_body
from osmosis_platform.training import service

router = APIRouter(prefix="/api/cli/training-runs", tags=["training runs"])


@router.post("", status_code=201)
def submit(scope: Scope, platform: PlatformDep, body: Annotated[Any, Body()]) -> dict[str, Any]:
    """Start a training run."""
    with platform.database.write() as session:
        run = service.submit(session, platform, scope, body)
        return submitted_body(platform, scope.workspace.name, run)


@router.get("")
def list_training_runs(scope: Scope, platform: PlatformDep, page: PageQuery) -> dict[str, Any]:
    """A page of training runs, newest first."""
    with platform.database.read() as session:
        runs, total = list_runs(session, scope.workspace.id, "train", page)
        items = [
            service.list_item(facts, page_url(platform, scope.workspace.name, facts.run))
            for facts in with_facts(session, runs)
        ]
    return page.body("training_runs", items, total)


@router.get("/{name_or_id}")
def get_training_run(name_or_id: str, scope: Scope, platform: PlatformDep) -> dict[str, Any]:
    """One training run by name or id."""
    with platform.database.read() as session:
        run = find_run(session, scope.workspace.id, "train", name_or_id)
        return service.detail(with_facts(session, [run])[0], page_url(platform, scope.workspace.name, run))


@router.get("/{name_or_id}/checkpoints")
def get_checkpoints(name_or_id: str, scope: Scope, platform: PlatformDep) -> dict[str, Any]:
    """The LoRA models that the run saved."""
    with platform.database.read() as session:
        return service.checkpoints(session, find_run(session, scope.workspace.id, "train", name_or_id))


@router.get("/{name_or_id}/metrics")
def get_metrics(name_or_id: str, scope: Scope, platform: PlatformDep) -> dict[str, Any]:
    """Progress and metrics."""
    with platform.database.read() as session:
        return service.metrics(session, find_run(session, scope.workspace.id, "train", name_or_id))


@router.get("/{name_or_id}/logs")
def get_logs(name_or_id: str, scope: Scope, platform: PlatformDep, window: LogQuery) -> dict[str, Any]:
    """A page of the run's log."""
    with platform.database.read() as session:
        run = find_run(session, scope.workspace.id, "train", name_or_id)
        return logs_page(session, run.id, window.limit, window.direction, window.cursor)


@router.post("/{name_or_id}/stop")
def stop(name_or_id: str, scope: Scope, platform: PlatformDep) -> dict[str, Any]:
    """Ask the run to stop; it saves a checkpoint first. Repeating it changes nothing."""
    with platform.database.write() as session:
        run = find_run(session, scope.workspace.id, "train", name_or_id)
        return {"id": run.id, "name": run.name, "status": request_stop(session, platform, run)}

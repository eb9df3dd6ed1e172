"""Routes that evaluations and trainings share: submit, list, detail, metrics, logs, stop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Body
from sqlalchemy.orm import Session

from osmosis_platform.context import Platform
from osmosis_platform.http.logs import LogQuery, logs_page
from osmosis_platform.http.paging import PageQuery
from osmosis_platform.http.scope import PlatformDep, Scope, WorkspaceScope
from osmosis_platform.runs.facts import RunFacts, with_facts
from osmosis_platform.runs.listing import RunFilter, filtered_runs
from osmosis_platform.runs.models import Run
from osmosis_platform.runs.repeats import IdempotencyKey, submit_once
from osmosis_platform.runs.service import Kind, find_run, page_url, request_stop
from osmosis_platform.runs.submit import submitted_body
from osmosis_platform.runs.submit_schema import submit_schema


@dataclass(frozen=True, slots=True)
class RunFaces:
    """What differs between kinds of runs: the rule of a submit and the shapes on the wire.

    `list_item` and `detail` get the run's facts and the address of its page.
    """

    kind: Kind
    collection: str
    submit: Callable[[Session, Platform, WorkspaceScope, Any], Run]
    list_item: Callable[[RunFacts, str], dict[str, Any]]
    detail: Callable[[RunFacts, str], dict[str, Any]]
    metrics: Callable[[Session, Run], dict[str, Any]]


def add_run_routes(router: APIRouter, faces: RunFaces) -> None:
    """Give a router the routes of one kind of runs."""

    @router.post("", status_code=201, openapi_extra=submit_schema(faces.kind))
    def submit(
        scope: Scope,
        platform: PlatformDep,
        body: Annotated[Any, Body()],
        idempotency_key: IdempotencyKey = None,
    ) -> dict[str, Any]:
        """Start a run. Repeated with the same `Idempotency-Key` it answers with the run that the first request made."""
        run = submit_once(platform, scope, faces.kind, idempotency_key, body, faces.submit)
        return submitted_body(platform, scope.workspace.name, run)

    @router.get("")
    def list_page(scope: Scope, platform: PlatformDep, page: PageQuery) -> dict[str, Any]:
        """A page of runs, newest first."""
        with platform.database.read() as session:
            runs, total = filtered_runs(session, scope.workspace.id, faces.kind, RunFilter(), page)
            items = [
                faces.list_item(facts, page_url(platform, scope.workspace.name, facts.run))
                for facts in with_facts(session, runs)
            ]
        return page.body(faces.collection, items, total)

    @router.get("/{name_or_id}")
    def get_run(name_or_id: str, scope: Scope, platform: PlatformDep) -> dict[str, Any]:
        """One run by name or id."""
        with platform.database.read() as session:
            run = find_run(session, scope.workspace.id, faces.kind, name_or_id)
            return faces.detail(with_facts(session, [run])[0], page_url(platform, scope.workspace.name, run))

    @router.get("/{name_or_id}/metrics")
    def get_metrics(name_or_id: str, scope: Scope, platform: PlatformDep) -> dict[str, Any]:
        """The numbers so far."""
        with platform.database.read() as session:
            return faces.metrics(session, find_run(session, scope.workspace.id, faces.kind, name_or_id))

    @router.get("/{name_or_id}/logs")
    def get_logs(name_or_id: str, scope: Scope, platform: PlatformDep, window: LogQuery) -> dict[str, Any]:
        """A page of the run's log."""
        with platform.database.read() as session:
            run = find_run(session, scope.workspace.id, faces.kind, name_or_id)
            return logs_page(session, run.id, window.limit, window.direction, window.cursor)

    @router.post("/{name_or_id}/stop")
    def stop(name_or_id: str, scope: Scope, platform: PlatformDep) -> dict[str, Any]:
        """Ask the run to stop; what it has stays. Repeating it changes nothing."""
        with platform.database.write() as session:
            run = find_run(session, scope.workspace.id, faces.kind, name_or_id)
            return {
                "id": run.id,
                "name": run.name,
                "status": request_stop(session, platform, run, scope.user),
            }

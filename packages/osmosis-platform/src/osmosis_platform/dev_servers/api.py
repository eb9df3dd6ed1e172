"""`/api/cli/dev-rollout-server`, and the address under which the servers themselves are reached."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from pathlib import PurePosixPath
from typing import Annotated, Any

import anyio
import httpx
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import AfterValidator, BaseModel, Field
from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool

from osmosis_ai.config.names import rollout_name_problem
from osmosis_platform.accounts.tokens import authenticate
from osmosis_platform.context import Platform
from osmosis_platform.dev_servers import service
from osmosis_platform.dev_servers.models import LIVE, DevServer
from osmosis_platform.errors import NotFound, Unavailable
from osmosis_platform.http.logs import LogQuery, logs_page
from osmosis_platform.http.paging import PageQuery
from osmosis_platform.http.scope import PlatformDep, Scope, bearer_token, client_address
from osmosis_platform.repositories.mirrors import freshen
from osmosis_platform.runs.log_view import lines_after, newest_lines
from osmosis_platform.workspaces.service import membership_of

cli = APIRouter(prefix="/api/cli/dev-rollout-server", tags=["development servers"])
servers = APIRouter(prefix="/dev-servers", include_in_schema=False)

# Clients give up after 65 seconds of silence.
HEARTBEAT_SECONDS = 15.0
LOOK_SECONDS = 0.5
_TIMEOUT = httpx.Timeout(600.0, connect=10.0)
_PASSED_ON = ("content-type", "accept")


def _rollout_folder(value: str) -> str:
    top, _, name = value.rstrip("/").partition("/")
    if top != "rollouts" or not value.isprintable() or rollout_name_problem(name) is not None:
        raise ValueError("must be the folder of a rollout, such as rollouts/mul")
    return f"rollouts/{name}"


def _python_file(value: str) -> str:
    path = PurePosixPath(value)
    if path.is_absolute() or ".." in path.parts or path.suffix != ".py" or not value.isprintable():
        raise ValueError("must be a .py file inside the rollout's folder")
    return value


class StartServer(BaseModel):
    """Which rollout to run, and for how long; with `ttl_hours` null until it is stopped."""

    rollout_name: Annotated[str, Field(min_length=1, max_length=200)]
    commit_sha: Annotated[str, Field(pattern="^[0-9a-fA-F]{7,40}$")]
    repository_path: Annotated[str, Field(max_length=500), AfterValidator(_rollout_folder)]
    entrypoint: Annotated[str, Field(max_length=500), AfterValidator(_python_file)] = "main.py"
    ttl_hours: Annotated[int, Field(ge=1, le=24 * 365)] | None = 24


@cli.post("", status_code=201)
def start(body: StartServer, scope: Scope, platform: PlatformDep) -> dict[str, Any]:
    """Run a rollout server. Its callers show `api_key`, which is told only here, or a member's own token."""
    freshen(platform, scope.repository, None, body.commit_sha.lower())
    with platform.database.write() as session:
        server, key = service.start(
            session,
            platform,
            scope,
            rollout_name=body.rollout_name,
            repository_path=body.repository_path,
            entrypoint=body.entrypoint,
            commit_sha=body.commit_sha.lower(),
            ttl_hours=body.ttl_hours,
        )
        return {**service.body(platform, server), "api_key": key}


@cli.get("")
def list_servers(scope: Scope, platform: PlatformDep, page: PageQuery) -> dict[str, Any]:
    """A page of the servers that have not ended, newest first."""
    with platform.database.read() as session:
        found, total = service.page(session, scope.workspace.id, page)
        items = [service.body(platform, server) for server in found]
    return page.body("dev_rollout_servers", items, total)


@cli.delete("/{server_id}")
def stop(server_id: str, scope: Scope, platform: PlatformDep) -> dict[str, Any]:
    """End a server. Repeating it changes nothing."""
    with platform.database.write() as session:
        server = service.find(session, scope.workspace.id, server_id)
        service.stop(session, platform, scope, server)
        return service.body(platform, server)


@cli.get("/{server_id}/logs")
def get_logs(server_id: str, scope: Scope, platform: PlatformDep, window: LogQuery) -> dict[str, Any]:
    """A page of what the server printed."""
    with platform.database.read() as session:
        server = service.find(session, scope.workspace.id, server_id)
        return logs_page(session, server.id, window.limit, window.direction, window.cursor)


@cli.get("/{server_id}/logs/stream", response_class=StreamingResponse)
def stream_logs(
    server_id: str, scope: Scope, platform: PlatformDep, tail: Annotated[int, Query(ge=0, le=200)] = 100
) -> Response:
    """The last `tail` lines, then new ones as they come, as server-sent events; ends with the server."""
    with platform.database.read() as session:
        server = service.find(session, scope.workspace.id, server_id)
        lines = newest_lines(session, server.id)
    shown = lines[len(lines) - min(tail, len(lines)) :]
    last = lines[-1]["sequence"] if lines else 0
    return StreamingResponse(_events(platform, server.id, shown, last), media_type="text/event-stream")


async def _events(
    platform: Platform, server_id: str, lines: list[dict[str, Any]], last: int
) -> AsyncIterator[str]:
    said = time.monotonic()
    yield ": \n\n"  # the answer begins at once, also where there is no line yet
    while True:
        for line in lines:
            yield f"data: {json.dumps({'timestamp': line['timestamp'], 'message': line['message']})}\n\n"
            last, said = line["sequence"], time.monotonic()
        if time.monotonic() - said > HEARTBEAT_SECONDS:
            yield ": ping\n\n"
            said = time.monotonic()
        lines, live = await run_in_threadpool(_new_lines, platform, server_id, last)
        if not lines:
            if not live:
                return
            await anyio.sleep(LOOK_SECONDS)


def _new_lines(platform: Platform, server_id: str, last: int) -> tuple[list[dict[str, Any]], bool]:
    with platform.database.read() as session:
        # In this order: what is written before the end is among the lines when the end is seen.
        live = session.get_one(DevServer, server_id).status in LIVE
        return lines_after(session, server_id, last), live


@servers.api_route("/{server_id}/{path:path}", methods=["GET", "POST"])
async def pass_on(server_id: str, path: str, request: Request, platform: PlatformDep) -> Response:
    """Hand a request to the server and its answer back."""
    port = await run_in_threadpool(_port, platform, server_id, bearer_token(request), client_address(request))
    client = httpx.AsyncClient(timeout=_TIMEOUT, trust_env=False)
    headers = {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
    url = httpx.URL(f"http://127.0.0.1:{port}/{path}", query=request.url.query.encode())
    try:
        answer = await client.request(request.method, url, content=await request.body(), headers=headers)
    except httpx.HTTPError as error:
        raise Unavailable(
            "The development server did not answer. Its log says more.", code="DEV_SERVER_SILENT", status=502
        ) from error
    finally:
        await client.aclose()
    kept = {"content-type": answer.headers["content-type"]} if "content-type" in answer.headers else None
    return Response(answer.content, answer.status_code, kept)


def _port(platform: Platform, server_id: str, credential: str, address: str) -> int:
    """Where the server listens, for somebody who may call it. Others do not learn whether it exists."""
    with platform.database.read() as session:
        server = session.get(DevServer, server_id)
        if server is None or not (
            service.opens(server, credential) or _member(session, platform, server, credential, address)
        ):
            raise NotFound(f"Development server not found: {server_id}", code="DEV_SERVER_NOT_FOUND")
        if server.port is None:
            raise Unavailable(f"The development server is {server.status}.", code="DEV_SERVER_NOT_RUNNING")
        return server.port


def _member(session: Session, platform: Platform, server: DevServer, credential: str, address: str) -> bool:
    with platform.limits.guessing(address):
        user = authenticate(session, credential).user
    return membership_of(session, server.workspace_id, user.id) is not None


router = APIRouter()
router.include_router(cli)
router.include_router(servers)

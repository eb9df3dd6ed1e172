"""`/v1/models` and `/v1/chat/completions`, as OpenAI's clients speak it.

A caller's key decides the workspace; the request then goes to the inference server with the internal key.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from functools import cache, partial
from typing import Any

import httpx
from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from fastapi.security import HTTPBearer
from starlette.concurrency import run_in_threadpool

from osmosis_ai.rollout.utils.strict_json import StrictJsonError, check_strict, place_of
from osmosis_platform.context import Platform
from osmosis_platform.errors import InvalidInput, PlatformError, Unavailable
from osmosis_platform.http.openapi import refusals
from osmosis_platform.http.scope import PlatformDep, bearer_token, client_address
from osmosis_platform.inference.catalogue import Target, find_target, models_body
from osmosis_platform.inference.keys import authenticate_key, mark_key_used
from osmosis_platform.inference.wire import CHAT_REQUEST, ErrorObject, error_object

router = APIRouter(
    prefix="/v1",
    tags=["inference"],
    responses=refusals(ErrorObject),
    dependencies=[Depends(HTTPBearer(auto_error=False, scheme_name="API key"))],
)

# A model may think for minutes; only the connection has to be quick.
_TIMEOUT = httpx.Timeout(600.0, connect=10.0)
# How long a caller waits for somebody else who is starting the server.
_START_SECONDS = 60.0
MAX_BODY = 32 * 1024**2


@router.get("/models")
def get_models(request: Request, platform: PlatformDep) -> Response:
    """The models that this key can call."""
    try:
        workspace_id = _workspace(platform, request)
        with platform.database.read() as session:
            return JSONResponse(models_body(session, workspace_id))
    except PlatformError as error:
        return error_object(error)


@router.post("/chat/completions", openapi_extra=CHAT_REQUEST)
async def chat_completions(request: Request, platform: PlatformDep) -> Response:
    """One completion; with `"stream": true` as server-sent events, passed on as they come."""
    try:
        workspace_id = await run_in_threadpool(_workspace, platform, request)
        return await complete(platform, workspace_id, _parse(await _read(request)))
    except PlatformError as error:
        return error_object(error)


async def complete(platform: Platform, workspace_id: str, body: dict[str, Any]) -> Response:
    """Pass a request of somebody in the workspace on to the inference server. Raises PlatformError."""
    await run_in_threadpool(_check, body)
    target = await run_in_threadpool(_target, platform, workspace_id, body["model"])
    if platform.supervisor is None or not platform.settings.serve_models:
        raise Unavailable("This platform serves no models right now.")
    base_url, key = await to_thread.run_sync(
        partial(platform.supervisor.inference.ensure, timeout=_START_SECONDS), limiter=_limiter()
    )
    return await _forward(base_url, key, {**body, "model": target.internal}, target)


@cache
def _limiter() -> CapacityLimiter:
    # Callers that wait for the server to start must not take the threads of everybody else.
    return CapacityLimiter(16)


def _workspace(platform: Platform, request: Request) -> str:
    text = bearer_token(request)
    with platform.database.read() as session, platform.limits.guessing(client_address(request)):
        key = authenticate_key(session, text)
    mark_key_used(platform.database, key)
    return key.workspace_id


def _target(platform: Platform, workspace_id: str, name: str) -> Target:
    with platform.database.read() as session:
        return find_target(session, workspace_id, name)


async def _read(request: Request) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > MAX_BODY:
            raise InvalidInput(f"The request is larger than {MAX_BODY // 1024**2} MiB.", status=413)
        parts.append(part)
    return b"".join(parts)


def _parse(raw: bytes) -> dict[str, Any]:
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"The request is no JSON: {error}") from error
    if not isinstance(body, dict) or not isinstance(body.get("model"), str):
        raise InvalidInput("The request needs a model.", field="model")
    return body


def _check(body: dict[str, Any]) -> None:
    try:
        check_strict(body)
    except StrictJsonError as error:
        place = place_of(error.path)
        raise InvalidInput(f"{place or 'The request'}: {error}.", field=place or None) from None


async def _forward(base_url: str, key: str, body: dict[str, Any], target: Target) -> Response:
    client = httpx.AsyncClient(timeout=_TIMEOUT, trust_env=False)
    try:
        request = client.build_request(
            "POST", f"{base_url}/v1/chat/completions", json=body, headers={"Authorization": f"Bearer {key}"}
        )
        answer = await client.send(request, stream=True)
    except httpx.HTTPError as error:
        await client.aclose()
        raise Unavailable(
            "The inference server is starting or was interrupted. Try again shortly."
        ) from error
    except BaseException:
        await client.aclose()
        raise
    names = (json.dumps(target.internal)[1:-1], json.dumps(target.public)[1:-1])
    if answer.headers.get("content-type", "").startswith("text/event-stream"):
        return StreamingResponse(
            _events(client, answer, names), status_code=answer.status_code, media_type="text/event-stream"
        )
    try:
        content = (await answer.aread()).decode()
    except httpx.HTTPError as error:
        raise Unavailable("The inference server was interrupted. Try again.") from error
    finally:
        await answer.aclose()
        await client.aclose()
    headers = {"Retry-After": answer.headers["retry-after"]} if "retry-after" in answer.headers else None
    if answer.is_error:
        content = content.replace(*names)
    return Response(_rename(content, names), answer.status_code, headers, media_type="application/json")


async def _events(
    client: httpx.AsyncClient, answer: httpx.Response, names: tuple[str, str]
) -> AsyncIterator[str]:
    try:
        async for line in answer.aiter_lines():
            yield _rename(line, names) + "\n"
    except httpx.HTTPError:
        broken = {
            "error": {
                "message": "The inference server was interrupted.",
                "type": "server_error",
                "code": "interrupted",
            }
        }
        yield f"data: {json.dumps(broken)}\n\n"
    finally:
        await answer.aclose()
        await client.aclose()


def _rename(text: str, names: tuple[str, str]) -> str:
    """Put the name the caller used in place of the internal one, only in the `model` field."""
    internal, public = names
    for gap in ("", " "):
        text = text.replace(f'"model":{gap}"{internal}"', f'"model":{gap}"{public}"', 1)
    return text

"""The routes of the inference server."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from osmosis_ai.rollout.utils.strict_json import StrictJsonError, check_strict, place_of
from osmosis_trainer.chat.errors import ChatRequestError
from osmosis_trainer.chat.request import ChatRequest
from osmosis_trainer.errors import TrainerError
from osmosis_trainer.serve.parameters import check_parameters
from osmosis_trainer.serve.registry import ModelEntry, ModelRegistry, model_not_found
from osmosis_trainer.serve.responses import CompletionResponse, error_response, refusal

logger = logging.getLogger(__name__)

MAX_BODY_BYTES = 32 * 1024 * 1024


def create_app(registry: ModelRegistry, *, api_key: str, idle_check_s: float | None = None) -> FastAPI:
    """The server over a registry. `idle_check_s`: how often idle models are looked for; None never does."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        reaper = asyncio.create_task(_unload_idle(registry, idle_check_s)) if idle_check_s else None
        try:
            yield
        finally:
            if reaper is not None:
                reaper.cancel()
                await asyncio.gather(reaper, return_exceptions=True)
            await registry.close()

    app = FastAPI(
        title="Osmosis inference", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None
    )
    app.state.registry = registry
    app.add_exception_handler(TrainerError, _on_trainer_error)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(Exception, _on_fault)

    @app.get("/health")
    async def health() -> dict[str, Any]:
        """Whether the server answers; names of models are for callers with a key."""
        loaded = sum(entry.loaded for entry in registry.entries())
        return {"status": "ok", "loaded_models": loaded, "open_requests": registry.open_requests}

    def authorised(request: Request) -> None:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), api_key.encode()):
            raise ChatRequestError("missing or wrong API key", code="invalid_api_key", status=401)

    app.include_router(_model_routes(registry), dependencies=[Depends(authorised)])
    app.include_router(_admin_routes(registry), dependencies=[Depends(authorised)])
    return app


def _model_routes(registry: ModelRegistry) -> APIRouter:
    router = APIRouter(prefix="/v1")

    @router.get("/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [_model(entry) for entry in registry.entries()]}

    @router.get("/models/{name:path}")
    async def model(name: str) -> dict[str, Any]:
        entry = next((entry for entry in registry.entries() if entry.id == name), None)
        if entry is None:
            raise model_not_found(name)
        return _model(entry)

    @router.post("/chat/completions")
    async def chat_completions(request: Request) -> Response:
        body = await _json_body(request)
        check_parameters(body)
        return CompletionResponse(registry, ChatRequest.parse(body))

    return router


def _admin_routes(registry: ModelRegistry) -> APIRouter:
    router = APIRouter(prefix="/admin")

    @router.put("/adapters/{name:path}")
    async def put_adapter(name: str, request: Request) -> dict[str, Any]:
        body = await _json_body(request)
        base = _text(body, "base")
        await registry.put_adapter(name, base, Path(_text(body, "path")))
        return {"name": name, "base": base, "model": f"{base}:{name}"}

    @router.delete("/adapters/{name:path}")
    async def delete_adapter(name: str) -> dict[str, Any]:
        return {"name": name, "removed": await registry.remove_adapter(name)}

    @router.put("/base-models")
    async def put_base_model(request: Request) -> dict[str, Any]:
        body = await _json_body(request)
        name = _text(body, "name")
        await registry.put_base(name, Path(_text(body, "path")))
        return {"name": name}

    return router


def _model(entry: ModelEntry) -> dict[str, Any]:
    return {
        "id": entry.id,
        "object": "model",
        "created": entry.created,
        "owned_by": "osmosis",
        "root": entry.base,
        "parent": entry.base if entry.adapter else None,
        "loaded": entry.loaded,
    }


async def _json_body(request: Request) -> Any:
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MAX_BODY_BYTES:
            raise ChatRequestError(f"the request body is over {MAX_BODY_BYTES} bytes", status=413)
    try:
        value = json.loads(bytes(body))
    except (ValueError, RecursionError) as error:
        raise ChatRequestError(f"the request body is not JSON: {error}") from None
    try:
        check_strict(value)
    except StrictJsonError as error:
        place = place_of(error.path)
        raise ChatRequestError(f"{place or 'the request body'}: {error}", param=place or None) from None
    return value


def _text(body: Any, field: str) -> str:
    value = body.get(field) if isinstance(body, dict) else None
    if not isinstance(value, str) or not value:
        raise ChatRequestError(f"{field} must be a non-empty string", param=field)
    return value


async def _on_trainer_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, TrainerError)
    return error_response(refusal(error, ""))


async def _on_fault(_: Request, error: Exception) -> Response:
    """A fault of this server: its traceback goes to the log, not to the caller."""
    told = ChatRequestError(
        "something went wrong in the inference server; its log says what", code="internal", status=500
    )
    return error_response(told)


async def _on_http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    body = {
        "error": {
            "message": str(error.detail),
            "type": "invalid_request_error",
            "param": None,
            "code": "not_found",
        }
    }
    return JSONResponse(body, status_code=error.status_code)


async def _unload_idle(registry: ModelRegistry, every_s: float) -> None:
    while True:
        await asyncio.sleep(every_s)
        await registry.unload_idle()

"""The rollout server: the HTTP face of an execution backend (protocol generation B)."""

import logging
import os
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any

from fastapi import FastAPI, HTTPException, Request, Response, status
from fastapi.encoders import jsonable_encoder
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse

from osmosis_ai.rollout.backend.base import ExecutionBackend
from osmosis_ai.rollout.context import RolloutContext
from osmosis_ai.rollout.server.delivery import CallbackDelivery
from osmosis_ai.rollout.server.lifecycle import RolloutTasks
from osmosis_ai.rollout.server.logs import configure_default_logging
from osmosis_ai.rollout.server.payloads import INTERNAL_ERROR, UNGRADED
from osmosis_ai.rollout.trajectory.save import save_trajectory
from osmosis_ai.rollout.types.execution import ExecutionRequest, ExecutionResult
from osmosis_ai.rollout.types.json_safe import json_safe_mapping
from osmosis_ai.rollout.types.protocol import (
    CancelRolloutsRequest,
    CancelRolloutsResponse,
    RolloutInitRequest,
    RolloutInitResponse,
    RolloutStatusResponse,
)
from osmosis_ai.rollout.utils.http import close_shared_client, post_json_with_retry

logger = logging.getLogger(__name__)

INSTANCE_ID_ENV = "_OSMOSIS_ROLLOUT_INSTANCE_ID"
INSTANCE_ID_HEADER = "x-osmosis-rollout-instance-id"
RETRY_AFTER_SEC = "5"
_SHUTDOWN_DRAIN_SEC = 10.0

type Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[Any]]


def create_rollout_server(
    *, backend: ExecutionBackend, lifespan: Lifespan | None = None, configure_logging: bool = True
) -> FastAPI:
    """The ASGI application that runs rollouts on ``backend``.

    ``lifespan`` is entered around it; running rollouts are drained before it closes. Logging is configured only where the root
    logger has no handler. When ``_OSMOSIS_ROLLOUT_INSTANCE_ID`` is set now, ``/health`` proves it in its body and a header.
    """
    if configure_logging:
        configure_default_logging()
    tasks = RolloutTasks()
    app = FastAPI(title="Osmosis rollout server", lifespan=_draining(lifespan, tasks))
    app.add_exception_handler(RequestValidationError, _invalid_request)
    _add_rollout_routes(app, backend, tasks)
    _add_health_route(app, backend, instance_id=os.environ.get(INSTANCE_ID_ENV))
    return app


def _draining(lifespan: Lifespan | None, tasks: RolloutTasks) -> Lifespan:
    @asynccontextmanager
    async def combined(app: FastAPI) -> AsyncIterator[Any]:
        async with lifespan(app) if lifespan is not None else nullcontext() as state:
            try:
                yield state
            finally:
                await tasks.drain(_SHUTDOWN_DRAIN_SEC)
                await close_shared_client()

    return combined


def _add_rollout_routes(app: FastAPI, backend: ExecutionBackend, tasks: RolloutTasks) -> None:
    @app.post("/rollout", status_code=status.HTTP_202_ACCEPTED)
    async def start_rollout(request: RolloutInitRequest) -> RolloutInitResponse:
        if not backend.has_capacity():
            raise HTTPException(
                429, "rollout queue is full; retry later", headers={"Retry-After": RETRY_AFTER_SEC}
            )
        # Started before the answer is written, so that a dropped connection cannot lose an accepted rollout.
        rollout = _handle_rollout(backend, request)
        try:
            tasks.start(rollout)
        except Exception as error:
            rollout.close()
            raise HTTPException(500, f"the rollout could not be scheduled: {error}") from error
        return RolloutInitResponse()

    @app.get("/rollout/{rollout_id}/status")
    async def rollout_status(rollout_id: str) -> RolloutStatusResponse:
        known = backend.rollout_status(rollout_id) or {"status": "unknown"}
        return RolloutStatusResponse(**{**known, "rollout_id": rollout_id})

    @app.post("/rollout/cancel")
    async def cancel_rollouts(request: CancelRolloutsRequest) -> CancelRolloutsResponse:
        selectors = (request.ids is not None) + (request.prefix is not None) + request.all
        if selectors != 1:
            raise HTTPException(422, "give exactly one of 'ids', 'prefix' and 'all': true")
        dispositions = backend.cancel_rollouts(ids=request.ids, prefix=request.prefix, all=request.all)
        return CancelRolloutsResponse(dispositions=dispositions)


def _add_health_route(app: FastAPI, backend: ExecutionBackend, *, instance_id: str | None) -> None:
    @app.get("/health")
    async def health(response: Response) -> dict[str, Any]:
        body = backend.health()
        if not instance_id:
            return body
        response.headers[INSTANCE_ID_HEADER] = instance_id
        return {**body, "instance_id": instance_id}


async def _invalid_request(request: Request, error: Exception) -> JSONResponse:
    # The refused body may hold NaN, which the answer quotes and JSON cannot carry.
    detail = jsonable_encoder(error.errors()) if isinstance(error, RequestValidationError) else [str(error)]
    body, _ = json_safe_mapping({"detail": detail})
    return JSONResponse(dict(body), status_code=422)


async def _handle_rollout(backend: ExecutionBackend, request: RolloutInitRequest) -> None:
    """Execute one rollout, report to the controller, then archive it.

    What the backend or a delivery raises is reported as an internal error on the channels that are still open.
    """
    rollout_id = request.rollout_id or uuid.uuid4().hex
    delivery = CallbackDelivery(request, rollout_id, post_json_with_retry)
    results: list[ExecutionResult] = []

    async def on_workflow_complete(result: ExecutionResult) -> None:
        results.append(result)
        await delivery.completion(result)

    async def on_grader_complete(result: ExecutionResult) -> None:
        results.append(result)
        await delivery.grader(result)

    wants_grading = request.grader_callback_url is not None or backend.capture_final_result
    llm_key = request.llm_api_key if request.llm_api_key is not None else request.controller_api_key
    try:
        execution = ExecutionRequest(
            id=rollout_id,
            prompt=request.initial_messages,
            label=request.label,
            metadata=request.metadata,
            agent_timeout_sec=request.agent_timeout_sec,
            grader_timeout_sec=request.grader_timeout_sec,
        )
        with RolloutContext(request.chat_completions_url, llm_key, rollout_id):
            await backend.execute(
                execution, on_workflow_complete, on_grader_complete if wants_grading else None
            )
    except Exception:
        logger.exception("Rollout %s failed outside of its workflow and grader", rollout_id)
        await delivery.failure(INTERNAL_ERROR, UNGRADED)
    await _archive(rollout_id, request, results, delivery)


async def _archive(
    rollout_id: str, request: RolloutInitRequest, results: list[ExecutionResult], delivery: CallbackDelivery
) -> None:
    """Save the last result that has a sample (grader over workflow), with the last diagnostics of any."""
    if not results:
        return
    with_sample = [result for result in results if result.sample is not None]
    diagnostics = [result.extra_fields for result in results if result.extra_fields is not None]
    await save_trajectory(
        rollout_id=rollout_id,
        result=(with_sample or results)[-1],
        request_label=request.label,
        request_metadata=request.metadata,
        request_extra_fields=request.extra_fields,
        report=delivery.report,
        diagnostics=diagnostics[-1] if diagnostics else None,
    )

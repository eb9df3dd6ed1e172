"""The rollout server: the HTTP face of an execution backend.

One core executes rollouts for controllers of every protocol generation. A body with callback URLs is answered as generation B
(generation A controllers accept it) and reported by callbacks; a body without any is answered with a polling lease.
"""

import logging
import os
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError

from osmosis_ai.rollout.backend.base import ExecutionBackend
from osmosis_ai.rollout.server.access import BearerKey
from osmosis_ai.rollout.server.delivery import CallbackDelivery
from osmosis_ai.rollout.server.direct_start import DirectStart
from osmosis_ai.rollout.server.execution import PollReporter, execute_rollout
from osmosis_ai.rollout.server.lifecycle import RolloutTasks
from osmosis_ai.rollout.server.logs import configure_default_logging
from osmosis_ai.rollout.server.polling import PolledRollout, PolledRollouts, PollingRules
from osmosis_ai.rollout.server.request_body import BadRequestError, error_response, problems_of
from osmosis_ai.rollout.server.routes import RolloutRoutes
from osmosis_ai.rollout.trajectory.save import save_trajectory
from osmosis_ai.rollout.types.protocol import PolledRolloutRequest, RolloutInitRequest
from osmosis_ai.rollout.utils.http import close_shared_client, post_json_with_retry

logger = logging.getLogger(__name__)

INSTANCE_ID_ENV = "_OSMOSIS_ROLLOUT_INSTANCE_ID"
_SHUTDOWN_DRAIN_SEC = 10.0
_SHUTDOWN_CLEANUP_SEC = 120.0

type Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[Any]]


def create_rollout_server(
    *,
    backend: ExecutionBackend,
    lifespan: Lifespan | None = None,
    configure_logging: bool = True,
    api_key: str | None = None,
    result_wait_timeout_sec: float = 30.0,
    polling_lease_timeout_sec: float = 120.0,
    result_retention_sec: float = 900.0,
) -> FastAPI:
    """The ASGI application that runs rollouts on ``backend``.

    ``lifespan`` is entered around it; running rollouts are drained before it closes. Logging is configured only where the root
    logger has no handler. When ``_OSMOSIS_ROLLOUT_INSTANCE_ID`` is set now, ``/health`` proves it in its body and a header.
    With ``api_key`` every route asks for it as a bearer. The last three are for controllers that poll: seconds that a poll waits
    for news, that a rollout lives without a poll, and that a result is kept.

    Raises:
        ValueError: for a blank key, or a lease that does not outlast a poll.
    """
    if configure_logging:
        configure_default_logging()
    tasks = RolloutTasks()
    polled = PolledRollouts(
        PollingRules(result_wait_timeout_sec, polling_lease_timeout_sec, result_retention_sec)
    )
    routes = RolloutRoutes(
        backend,
        tasks,
        polled,
        handle_called_back=lambda request: _handle_rollout(backend, request),
        handle_polled=lambda request, rollout: _handle_polled_rollout(backend, request, rollout),
        instance_id=os.environ.get(INSTANCE_ID_ENV) or None,
    )
    app = FastAPI(title="Osmosis rollout server", lifespan=_draining(lifespan, tasks, backend))
    app.add_exception_handler(RequestValidationError, _invalid_request)
    app.add_exception_handler(BadRequestError, _refused)
    app.add_middleware(DirectStart, admit=routes.admit)
    if api_key is not None:
        BearerKey(app, key=api_key)  # refuses a blank key now, not at the first request
        app.add_middleware(BearerKey, key=api_key)
    routes.add_to(app)
    return app


def _draining(lifespan: Lifespan | None, tasks: RolloutTasks, backend: ExecutionBackend) -> Lifespan:
    @asynccontextmanager
    async def combined(app: FastAPI) -> AsyncIterator[Any]:
        tasks.accepting = True
        async with lifespan(app) if lifespan is not None else nullcontext() as state:
            try:
                yield state
            finally:
                await tasks.drain(_SHUTDOWN_DRAIN_SEC, cleanup_sec=_SHUTDOWN_CLEANUP_SEC)
                try:
                    await backend.shutdown()
                except Exception:
                    logger.exception("The backend could not be shut down")
                await close_shared_client()

    return combined


async def _handle_rollout(backend: ExecutionBackend, request: RolloutInitRequest) -> None:
    """Execute one rollout and report it by callbacks."""
    rollout_id = request.rollout_id or uuid.uuid4().hex
    await execute_rollout(
        backend,
        request,
        rollout_id=rollout_id,
        llm_key=request.llm_api_key if request.llm_api_key is not None else request.controller_api_key,
        graded=request.grader_callback_url is not None or backend.capture_final_result,
        reporter=CallbackDelivery(request, rollout_id, post_json_with_retry),
        save=save_trajectory,
    )


async def _handle_polled_rollout(
    backend: ExecutionBackend, request: PolledRolloutRequest, rollout: PolledRollout
) -> None:
    """Execute one rollout and keep its result for the controller to fetch."""
    await execute_rollout(
        backend,
        request,
        rollout_id=request.rollout_id,
        llm_key=request.llm_api_key,
        graded=request.grade or backend.capture_final_result,
        reporter=PollReporter(rollout, graded=request.grade),
        save=save_trajectory,
        progress=rollout,
    )


async def _invalid_request(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return error_response(422, problems_of(error.errors(), where=()))


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, BadRequestError)
    return error.response

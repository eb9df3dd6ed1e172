"""The loopback listener of a controller: callbacks and the chat endpoint, in the running event loop."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import uvicorn
from fastapi import APIRouter, FastAPI
from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from osmosis_ai.rollout.controller.chat_router import ChatEndpoint, has_bearer
from osmosis_ai.rollout.controller.llm_bridge import LiteLLMBridge, create_bridge_router
from osmosis_ai.rollout.controller.store import CallbackStore, UnknownRolloutIdError
from osmosis_ai.rollout.types import GraderCompleteRequest, RolloutCompleteRequest
from osmosis_ai.rollout.utils.identifiers import is_single_path_segment
from osmosis_ai.rollout.utils.request_size import BodyTooLargeError, read_body

logger = logging.getLogger(__name__)

_START_POLL_ATTEMPTS = 500
_START_POLL_INTERVAL_SEC = 0.02

# Rollout servers pool their connections; closing an idle one races with the next callback.
_KEEP_ALIVE_SEC = 3600
_BACKLOG = 4096

_TERMINAL_COMPLETIONS = frozenset({"success", "failure", "cancelled"})
_TERMINAL_GRADINGS = frozenset({"success", "failure"})


class _CallbackRefused(Exception):
    def __init__(self, status: int, detail: Any) -> None:
        super().__init__(detail)
        self.response = JSONResponse({"detail": detail}, status_code=status)


def callback_routes(store: CallbackStore, *, auth_token: str) -> list[BaseRoute]:
    """The two callback routes: 200 acknowledged, 401 wrong bearer, 404 unknown id, 422 not a terminal callback."""
    if not auth_token.strip():
        raise ValueError("auth_token must not be blank: it authenticates the callbacks")

    async def completion(request: Request) -> Response:
        try:
            rollout_id, payload = await _read(
                request, auth_token, RolloutCompleteRequest, _TERMINAL_COMPLETIONS
            )
            return JSONResponse(await store.handle_completion(rollout_id, payload))
        except _CallbackRefused as refused:
            return refused.response
        except UnknownRolloutIdError as error:
            return JSONResponse({"detail": str(error)}, status_code=404)

    async def grader(request: Request) -> Response:
        try:
            rollout_id, payload = await _read(request, auth_token, GraderCompleteRequest, _TERMINAL_GRADINGS)
            return JSONResponse(await store.handle_grader(rollout_id, payload))
        except _CallbackRefused as refused:
            return refused.response
        except UnknownRolloutIdError as error:
            return JSONResponse({"detail": str(error)}, status_code=404)
        except Exception:
            # The result could not be made durable; 503 makes the rollout server send it again.
            logger.exception("could not commit the result of rollout %s", request.path_params["rollout_id"])
            return JSONResponse({"detail": "the result could not be stored; send it again"}, status_code=503)

    return [
        Route("/v1/rollouts/{rollout_id}/completion", completion, methods=["POST"]),
        Route("/v1/rollouts/{rollout_id}/grader", grader, methods=["POST"]),
    ]


async def _read[Payload: BaseModel](
    request: Request, auth_token: str, model: type[Payload], terminal: frozenset[str]
) -> tuple[str, Payload]:
    if not has_bearer(request, [auth_token]):
        raise _CallbackRefused(401, "missing or wrong bearer token")
    rollout_id = request.path_params["rollout_id"]
    if not is_single_path_segment(rollout_id):
        raise _CallbackRefused(422, "invalid rollout_id")
    try:
        payload = model.model_validate_json(await read_body(request))
    except BodyTooLargeError as error:
        raise _CallbackRefused(413, str(error)) from error
    except ValidationError as error:
        raise _CallbackRefused(
            422, error.errors(include_url=False, include_context=False, include_input=False)
        ) from error
    named: str | None = getattr(payload, "rollout_id", None)
    if named is not None and named != rollout_id:
        raise _CallbackRefused(422, f"body names rollout {named!r}, the URL names {rollout_id!r}")
    status = payload.status  # type: ignore[attr-defined]
    if str(status.value) not in terminal:
        raise _CallbackRefused(422, f"status {status.value!r} is not terminal")
    return rollout_id, payload


def create_callback_app(store: CallbackStore, *, auth_token: str) -> FastAPI:
    """An app with the callback routes of ``store``; ``auth_token`` is the bearer rollout servers must send."""
    app = FastAPI(openapi_url=None)
    app.router.routes.extend(callback_routes(store, auth_token=auth_token))
    return app


class _EmbeddedServer(uvicorn.Server):
    """A uvicorn server that leaves the signal handlers to the process it lives in."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class CallbackListener:
    """Serves the callbacks of ``store`` and, with a bridge or chat endpoint, model calls on 127.0.0.1.

    An async context manager; the port is picked by the system. May be started again after it was stopped or failed to
    start. Rollout ids are percent-encoded in the URLs it hands out.
    """

    def __init__(
        self,
        store: CallbackStore,
        *,
        auth_token: str,
        bridge: LiteLLMBridge | None = None,
        bridge_token: str | None = None,
        chat: ChatEndpoint | None = None,
    ) -> None:
        self._app = create_callback_app(store, auth_token=auth_token)
        if bridge is not None:
            router: APIRouter = create_bridge_router(bridge, auth_token=bridge_token or "")
            self._app.router.routes.extend(router.routes)
        if chat is not None:
            self._app.router.routes.append(chat.route)
        self._server: _EmbeddedServer | None = None
        self._task: asyncio.Task[None] | None = None
        self._port: int | None = None

    @property
    def base_url(self) -> str:
        """``http://127.0.0.1:<port>``; only while started."""
        if self._port is None:
            raise RuntimeError("the listener is not started: use it as an async context manager")
        return f"http://127.0.0.1:{self._port}"

    def completion_url(self, rollout_id: str) -> str:
        """Where the server reports the end of the workflow."""
        return f"{self.chat_completions_url(rollout_id)}/completion"

    def grader_url(self, rollout_id: str) -> str:
        """Where the server reports the graded sample."""
        return f"{self.chat_completions_url(rollout_id)}/grader"

    def chat_completions_url(self, rollout_id: str) -> str:
        """The OpenAI base URL of the rollout; clients append ``/chat/completions``."""
        return f"{self.base_url}/v1/rollouts/{quote(rollout_id, safe='')}"

    async def __aenter__(self) -> "CallbackListener":
        if self._task is not None:
            raise RuntimeError("the listener is already started")
        listening = socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)
        self._port = listening.getsockname()[1]
        config = uvicorn.Config(
            self._app,
            log_config=None,
            log_level="warning",
            access_log=False,
            lifespan="off",
            ws="none",
            http="h11",
            backlog=_BACKLOG,
            timeout_keep_alive=_KEEP_ALIVE_SEC,
            timeout_graceful_shutdown=1,
        )
        self._server = _EmbeddedServer(config)
        self._task = asyncio.create_task(self._server.serve(sockets=[listening]))
        try:
            await self._until_started()
        except BaseException:
            listening.close()
            await self._stop()
            raise
        return self

    async def _until_started(self) -> None:
        assert self._server is not None
        assert self._task is not None
        for _ in range(_START_POLL_ATTEMPTS):
            if self._server.started:
                return
            if self._task.done():
                self._task.result()
                raise RuntimeError("the callback listener stopped while starting")
            await asyncio.sleep(_START_POLL_INTERVAL_SEC)
        raise RuntimeError("the callback listener did not start in time")

    async def __aexit__(self, *exc_info: object) -> None:
        await self._stop()

    async def _stop(self) -> None:
        task, server = self._task, self._server
        self._task = self._server = self._port = None
        if server is None or task is None:
            return
        server.should_exit = True
        if not server.started:
            task.cancel()
        await asyncio.gather(task, return_exceptions=True)

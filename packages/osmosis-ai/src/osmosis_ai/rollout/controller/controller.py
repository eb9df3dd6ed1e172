"""Drives one rollout server: the one entry of evaluation and training to rollouts."""

import asyncio
import logging
import secrets
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any, Self
from uuid import uuid4

import httpx

from osmosis_ai.rollout.controller.chat import ChatModel
from osmosis_ai.rollout.controller.chat_router import ChatEndpoint
from osmosis_ai.rollout.controller.lanes import make_http_client
from osmosis_ai.rollout.controller.listener import CallbackListener
from osmosis_ai.rollout.controller.result import RolloutResult, classify
from osmosis_ai.rollout.controller.server_client import (
    NOT_CONNECTED,
    ROLLOUT_SERVER_TIMEOUT,
    RolloutProtocolError,
    RolloutServerClient,
)
from osmosis_ai.rollout.controller.store import CallbackStore, TerminalCallbackResult
from osmosis_ai.rollout.controller.watch import ServerUnavailableError, ServerWatch
from osmosis_ai.rollout.driver import RolloutRunRequest
from osmosis_ai.rollout.http_driver import HttpRolloutDriver

logger = logging.getLogger(__name__)

_OPEN_FILES = 65_536
_REFUSED_PAUSE_SEC = 0.1
# A server that answers so has no use for this request, however often it comes; it may take the others.
_FAULT_OF_REQUEST = frozenset({400, 413, 422})

ResultHook = Callable[[RolloutRunRequest, RolloutResult], Awaitable[None]]


@dataclass(slots=True)
class _OpenRollout:
    request: RolloutRunRequest
    started: float
    admitted: bool = False
    lost: str | None = None
    result: RolloutResult | None = None


class RolloutController:
    """Runs rollouts on the server at ``rollout_url`` and answers their model calls with ``chat``.

    An async context manager. ``instance_id`` is the identity the server must have at the first contact. ``on_result``
    makes a verdict durable before the rollout server is told that it arrived; when it raises, the server sends the
    verdict again. It is not called for ``invalid`` results. ``start_timeout_s`` bounds the wait for a server that does
    not answer. With ``poll`` results are fetched from servers that keep them (they then know nothing of usage);
    ``server_api_key`` is for servers that ask for a key of their own.
    """

    def __init__(
        self,
        *,
        rollout_url: str,
        chat: ChatModel,
        instance_id: str | None = None,
        on_result: ResultHook | None = None,
        start_timeout_s: float = 120.0,
        poll: bool = False,
        server_api_key: str | None = None,
    ) -> None:
        self._url = rollout_url
        self._chat = chat
        self._on_result = on_result
        self._instance_id = instance_id
        self._start_timeout_s = start_timeout_s
        self._poll = poll
        self._server_api_key = server_api_key
        self._open: dict[str, _OpenRollout] = {}
        self._losing: set[asyncio.Task[None]] = set()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        _raise_open_file_limit()
        callback_key, chat_key = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        self._store = CallbackStore(on_terminal_commit=self._commit, on_completion=self._report)
        self._endpoint = ChatEndpoint(
            self._chat, auth_tokens=[chat_key, callback_key], is_open=self._store.is_open
        )
        self._listener = CallbackListener(self._store, auth_token=callback_key, chat=self._endpoint)
        await self._stack.enter_async_context(self._listener)
        http = await self._stack.enter_async_context(make_http_client(ROLLOUT_SERVER_TIMEOUT))
        self._watch = ServerWatch(
            RolloutServerClient(self._url, http, api_key=self._server_api_key),
            on_lost=self._lose_all,
            is_needed=lambda: bool(self._open),
            instance_id=self._instance_id,
            start_timeout_s=self._start_timeout_s,
        )
        self._driver = HttpRolloutDriver(
            rollout_base_url=self._url,
            callback_store=self._store,
            completion_url_for=self._listener.completion_url,
            grader_url_for=self._listener.grader_url,
            chat_completions_url_for=self._listener.chat_completions_url,
            chat_api_key=chat_key,
            controller_api_key=callback_key,
            http_client=http,
            poll=self._poll,
            server_api_key=self._server_api_key,
        )
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._watch.close()
        self._endpoint.close_all()
        await self._stack.aclose()

    @property
    def open_rollouts(self) -> int:
        """How many rollouts are running."""
        return len(self._open)

    async def capacity(self) -> int | None:
        """How many rollouts the server says it can hold at once; None if it does not say.

        Waits for the server like :meth:`run` and raises :class:`ServerUnavailableError` when it does not come.
        """
        health = await self._watch.ready()
        concurrency = health.get("concurrency")
        hints = (
            health.get("max_queue_depth"),
            concurrency.get("max_concurrent") if isinstance(concurrency, dict) else None,
        )
        return next((hint for hint in hints if type(hint) is int and hint > 0), None)

    async def run(self, request: RolloutRunRequest) -> RolloutResult:
        """Run one rollout to its end; never raises for what the server or the agent does.

        Raises :class:`ValueError` for a request that has no JSON form or a bad id.
        Waits for a server that does not answer yet. An empty ``rollout_id`` gets a fresh one; an id can be used once.
        """
        request = replace(request, rollout_id=request.rollout_id or uuid4().hex)
        give_up_at = time.monotonic() + self._start_timeout_s
        try:
            while True:
                await self._watch.ready()
                result = await self._run(request, retry_refused=time.monotonic() < give_up_at)
                if result is not None:
                    if result.status == "invalid":
                        # Perhaps another server answers by now: the next rollout asks before it trusts this one.
                        self._watch.suspect()
                    return result
                await asyncio.sleep(_REFUSED_PAUSE_SEC)
        except ServerUnavailableError as error:
            return _invalid(request, "rollout_server_unreachable", str(error))
        finally:
            self._endpoint.close(request.rollout_id)
            self._chat.discard(request.rollout_id)

    async def _run(self, request: RolloutRunRequest, *, retry_refused: bool) -> RolloutResult | None:
        """Run one rollout; None when the server took no connection, so that nothing has begun yet."""
        rollout_id = request.rollout_id
        state = self._open[rollout_id] = _OpenRollout(request, time.monotonic())
        self._watch.wake()

        def admitted() -> None:
            state.admitted, state.started = True, time.monotonic()

        try:
            terminal = await self._driver.drive(request, on_admitted=admitted)
            # What was made durable is what is returned.
            return state.result or self._judge(state, terminal)
        except RolloutProtocolError as error:
            if error.status_code == 404 and state.admitted:
                return _invalid(request, "rollout_server_lost", error.message, state)
            return await self._refused(request, error, state)
        except NOT_CONNECTED as error:
            # The next rollout waits until the server is back.
            self._watch.suspect()
            if retry_refused and not state.admitted:
                return None
            return _invalid(request, "rollout_server_lost", f"{self._url} took no connection: {error}", state)
        except httpx.TransportError as error:
            return _invalid(request, "rollout_transport_error", str(error) or type(error).__name__, state)
        finally:
            del self._open[rollout_id]

    async def _refused(
        self, request: RolloutRunRequest, error: RolloutProtocolError, state: _OpenRollout
    ) -> RolloutResult:
        result = _invalid(request, "rollout_protocol_error", error.message, state)
        if state.admitted or error.status_code not in _FAULT_OF_REQUEST:
            return result
        failed = replace(result, status="failed")
        if self._on_result is not None:
            await self._on_result(request, failed)
        return failed

    def _judge(self, state: _OpenRollout, terminal: TerminalCallbackResult) -> RolloutResult:
        result = classify(terminal, duration_ms=(time.monotonic() - state.started) * 1000)
        if terminal.source == "cancelled" and state.lost is not None:
            return replace(result, error_type="rollout_server_lost", error_message=state.lost)
        unanswered = self._endpoint.unanswered(result.rollout_id)
        if unanswered is not None and result.status != "invalid":
            return replace(
                result,
                status="invalid",
                reward=None,
                error_type="policy_unavailable",
                error_message=f"the policy did not answer a model call: {unanswered}",
            )
        return result

    async def _commit(self, terminal: TerminalCallbackResult) -> None:
        state = self._open.get(terminal.rollout_id)
        if state is None:
            return
        result = self._judge(state, terminal)
        if self._on_result is not None and result.status != "invalid":
            await self._on_result(state.request, result)
        state.result = result

    def _report(self, rollout_id: str) -> dict[str, Any] | None:
        report = self._chat.trajectory_report(rollout_id)
        return None if report is None else {"trajectory": report}

    def _lose_all(self, reason: str) -> None:
        for rollout_id, state in list(self._open.items()):
            if state.lost is None:
                state.lost = reason
                task = asyncio.create_task(self._lose(rollout_id))
                self._losing.add(task)
                task.add_done_callback(self._losing.discard)

    async def _lose(self, rollout_id: str) -> None:
        ack = {"ok": True, "error_type": "rollout_server_lost"}
        if self._store.is_open(rollout_id):
            await self._store.acknowledge_without_commit(rollout_id, acknowledgment=ack)


def _invalid(
    request: RolloutRunRequest, error_type: str, message: str, state: _OpenRollout | None = None
) -> RolloutResult:
    duration = 0.0 if state is None else (time.monotonic() - state.started) * 1000
    return RolloutResult(request.rollout_id, "invalid", None, None, error_type, message, duration)


def _raise_open_file_limit() -> None:
    """A rollout may hold several connections at once; the usual limit of 1,024 files is too low for a thousand."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(_OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))

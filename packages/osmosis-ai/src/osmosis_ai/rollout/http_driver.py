"""Runs rollouts on a rollout server over HTTP, whichever generation of the protocol it speaks.

One request body carries the fields of all generations. The reply decides how the result arrives: with a polling lease it is
polled, without one it is called back. A polled result goes through the same store as a callback, so the rules for the first
terminal event and for durability are one.
"""

import asyncio
import contextlib
import math
from collections.abc import Callable, Coroutine
from typing import Any

import httpx
from pydantic import ValidationError

from osmosis_ai.rollout.controller.lanes import make_http_client
from osmosis_ai.rollout.controller.server_client import (
    NOT_CONNECTED,
    ROLLOUT_SERVER_TIMEOUT,
    Lease,
    RolloutProtocolError,
    RolloutServerClient,
    _retry_after_seconds,
    encode_rollout,
)
from osmosis_ai.rollout.controller.store import CallbackStore, TerminalCallbackResult, UnknownRolloutIdError
from osmosis_ai.rollout.driver import RolloutDriver, RolloutOutcome, RolloutRunRequest
from osmosis_ai.rollout.types import GraderCompleteRequest, GraderStatus, RolloutStatus
from osmosis_ai.rollout.utils.identifiers import ensure_single_path_segment

__all__ = ["HttpRolloutDriver", "RolloutProtocolError", "_retry_after_seconds"]

_CALLBACK_FIELDS = frozenset({"completion_callback_url", "grader_callback_url", "controller_api_key"})
DEADLINE_MARGIN_SEC = 60.0
DEFAULT_DEADLINE_SEC = 3600.0


def callback_deadline(request: RolloutRunRequest) -> float:
    """Seconds after admission in which the result has to be there.

    Both time limits and a margin of one minute; an hour when a limit is missing or the sum is not positive.
    """
    if request.agent_timeout_sec is None or request.grader_timeout_sec is None:
        return DEFAULT_DEADLINE_SEC
    total = request.agent_timeout_sec + request.grader_timeout_sec
    return total + DEADLINE_MARGIN_SEC if total > 0 and math.isfinite(total) else DEFAULT_DEADLINE_SEC


class HttpRolloutDriver(RolloutDriver):
    """Drives the rollout server at ``rollout_base_url``.

    The three ``*_for`` functions map a rollout id to the URLs given to the server. ``controller_api_key`` is the bearer
    of callbacks (and of chat on old servers), ``chat_api_key`` the bearer of chat. ``callback_timeout_sec`` replaces the
    deadline computed from the time limits of each request. With ``poll`` results are fetched from every server that keeps
    them, and called back by the others. ``server_api_key`` is for servers that ask for a key of their own.
    """

    def __init__(
        self,
        *,
        rollout_base_url: str,
        callback_store: CallbackStore,
        completion_url_for: Callable[[str], str],
        grader_url_for: Callable[[str], str],
        chat_completions_url_for: Callable[[str], str],
        chat_api_key: str | None,
        controller_api_key: str,
        http_client: httpx.AsyncClient | None = None,
        callback_timeout_sec: float | None = None,
        poll: bool = False,
        server_api_key: str | None = None,
    ) -> None:
        if not controller_api_key.strip():
            raise ValueError("controller_api_key must not be blank: it authenticates the callbacks")
        self._store = callback_store
        self._completion_url_for = completion_url_for
        self._grader_url_for = grader_url_for
        self._chat_completions_url_for = chat_completions_url_for
        self._chat_api_key = chat_api_key
        self._controller_api_key = controller_api_key
        self._rollout_base_url = rollout_base_url
        self._http = http_client
        self._callback_timeout_sec = callback_timeout_sec
        self._poll_results = poll
        self._server_api_key = server_api_key

    async def run(self, request: RolloutRunRequest) -> RolloutOutcome:
        """Run one rollout.

        Raises :class:`RolloutProtocolError`, :class:`httpx.TransportError`, and :class:`ValueError` for a request that has no
        JSON form.
        """
        return _outcome(await self.drive(request))

    async def drive(
        self, request: RolloutRunRequest, *, on_admitted: Callable[[], None] | None = None
    ) -> TerminalCallbackResult:
        """Run one rollout to its terminal event; ``on_admitted`` is called when the server has accepted it.

        After an :class:`httpx.ConnectError` or ``ConnectTimeout`` before that, the server has not heard of the rollout: its id can be used again.
        """
        if not request.rollout_id:
            raise ValueError(
                "rollout_id must not be empty: use a fresh id, such as uuid4().hex, for every attempt"
            )
        ensure_single_path_segment(request.rollout_id, label="rollout_id")
        body = self._body(request)
        encoded = encode_rollout(body)
        async with contextlib.AsyncExitStack() as stack:
            http = self._http
            if http is None:
                http = await stack.enter_async_context(make_http_client(ROLLOUT_SERVER_TIMEOUT))
            server = RolloutServerClient(self._rollout_base_url, http, api_key=self._server_api_key)
            admitted = False

            def note_admission() -> None:
                nonlocal admitted
                admitted = True
                if on_admitted is not None:
                    on_admitted()

            await self._store.register(request.rollout_id)
            try:
                admit = self._admit(server, body, encoded)
                return await self._drive(server, request, admit, note_admission)
            except BaseException as error:
                if admitted or not isinstance(error, NOT_CONNECTED):
                    await self._abandon(server, request.rollout_id)
                raise
            finally:
                await self._store.discard(request.rollout_id)

    async def _drive(
        self,
        server: RolloutServerClient,
        request: RolloutRunRequest,
        admit: Coroutine[Any, Any, Lease | None],
        on_admitted: Callable[[], None],
    ) -> TerminalCallbackResult:
        rollout_id = request.rollout_id
        async with _Tasks() as tasks:
            ended: asyncio.Task[TerminalCallbackResult] = tasks.start(self._store.wait_terminal(rollout_id))
            admission = tasks.start(admit)
            await asyncio.wait({ended, admission}, return_when=asyncio.FIRST_COMPLETED)
            # A server that called back has accepted the rollout, whatever becomes of the answer to the post.
            if not ended.done():
                lease = admission.result()
                on_admitted()
                waiting: set[asyncio.Task[Any]] = {ended}
                if lease is not None:
                    waiting.add(tasks.start(self._poll(server, rollout_id, lease)))
                deadline = self._callback_timeout_sec
                timeout = callback_deadline(request) if deadline is None else deadline
                done, _ = await asyncio.wait(waiting, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
                if not done:
                    terminal = await self._store.finalize_timeout(rollout_id)
                    if terminal.source == "timeout":
                        await server.cancel([rollout_id])
                    return terminal
            return await ended

    async def _admit(self, server: RolloutServerClient, body: dict[str, Any], encoded: bytes) -> Lease | None:
        hide = [key for key in (self._controller_api_key, self._chat_api_key) if key]
        if self._poll_results:
            polled = {key: value for key, value in body.items() if key not in _CALLBACK_FIELDS}
            try:
                return await server.admit(encode_rollout(polled), hide=hide)
            except RolloutProtocolError as error:
                if error.status_code != 422:
                    raise
            # It wants a callback URL, so results cannot be fetched from it; nothing has begun there.
        return await server.admit(encoded, hide=hide)

    async def _poll(self, server: RolloutServerClient, rollout_id: str, lease: Lease) -> None:
        """Fetch the result and end the rollout with it, as a grader callback would have."""
        result = await server.result(rollout_id, lease)
        if result.get("status") == RolloutStatus.CANCELLED:
            await self._store.acknowledge_without_commit(rollout_id)
            return
        success = result.get("status") == RolloutStatus.SUCCESS
        category = result.get("err_category")
        known = {"timeout", "validation_error", "http_error", "agent_error"}
        message = result.get("err_message")
        if category is not None and category not in known:
            message = f"{category}: {message}" if message else str(category)
            if category == "lease_expired":
                raise RolloutProtocolError("the polling lease of the rollout expired", status_code=200)
        try:
            payload = GraderCompleteRequest.model_validate(
                {
                    "status": GraderStatus.SUCCESS if success else GraderStatus.FAILURE,
                    "rollout_id": rollout_id,
                    "sample": result.get("sample"),
                    "err_message": message,
                    "err_category": category if category in known else None,
                }
            )
        except ValidationError as error:
            raise RolloutProtocolError(f"unusable polled result: {error}", status_code=200) from error
        await self._store.handle_grader(rollout_id, payload)

    async def _abandon(self, server: RolloutServerClient, rollout_id: str) -> None:
        """Let late callbacks end quietly and tell the server that nobody waits any more."""
        with contextlib.suppress(UnknownRolloutIdError):
            await self._store.acknowledge_without_commit(rollout_id)
        await server.cancel([rollout_id])

    def _body(self, request: RolloutRunRequest) -> dict[str, Any]:
        return {
            "rollout_id": request.rollout_id,
            "initial_messages": request.messages,
            "label": request.label,
            "metadata": request.metadata,
            "chat_completions_url": self._chat_completions_url_for(request.rollout_id),
            "completion_callback_url": self._completion_url_for(request.rollout_id),
            "grader_callback_url": self._grader_url_for(request.rollout_id),
            "controller_api_key": self._controller_api_key,
            "llm_api_key": self._chat_api_key,
            "grade": True,
            "agent_timeout_sec": request.agent_timeout_sec,
            "grader_timeout_sec": request.grader_timeout_sec,
            "extra_fields": request.extra_fields,
        }


class _Tasks:
    """Tasks that do not outlive a block: what still runs at its end is cancelled and awaited."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[Any]] = []

    async def __aenter__(self) -> "_Tasks":
        return self

    def start[T](self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(coroutine)
        self._tasks.append(task)
        return task

    async def __aexit__(self, *exc_info: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _outcome(terminal: TerminalCallbackResult) -> RolloutOutcome:
    if terminal.source == "timeout":
        return RolloutOutcome(RolloutStatus.FAILURE, error="callback_timeout", rollout_id=terminal.rollout_id)
    if terminal.source == "cancelled" or terminal.grader is None:
        return RolloutOutcome(RolloutStatus.CANCELLED, error="cancelled", rollout_id=terminal.rollout_id)
    grader = terminal.grader
    if grader.status == GraderStatus.SUCCESS:
        return RolloutOutcome(RolloutStatus.SUCCESS, grader.sample, rollout_id=terminal.rollout_id)
    category = grader.err_category
    error = grader.err_message or (category.value if category else "grader_failed")
    return RolloutOutcome(RolloutStatus.FAILURE, grader.sample, error, terminal.rollout_id)

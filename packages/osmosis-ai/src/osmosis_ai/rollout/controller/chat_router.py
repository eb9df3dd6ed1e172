"""The rollout-scoped chat endpoint: ``/v1/rollouts/{rollout_id}/chat/completions``."""

import asyncio
import hmac
import json
import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from osmosis_ai.rollout.controller.chat import ChatError, ChatModel, is_client_retry
from osmosis_ai.rollout.controller.chat_stream import ChatResponse, encode_completion, error_response
from osmosis_ai.rollout.utils.identifiers import is_single_path_segment
from osmosis_ai.rollout.utils.request_size import BodyTooLargeError, read_body
from osmosis_ai.rollout.utils.strict_json import StrictJsonError, decode_strict

logger = logging.getLogger(__name__)


def has_bearer(request: Request, tokens: Sequence[str]) -> bool:
    """Whether the request carries one of the tokens; every token is compared in constant time."""
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    matches = [hmac.compare_digest(given.strip().encode(), token.encode()) for token in tokens]
    return scheme.lower() == "bearer" and any(matches)


class ChatEndpoint:
    """Model calls of all rollouts of one controller, handed to a :class:`ChatModel`.

    A call whose policy failed leaves a mark on its rollout (:meth:`unanswered`) until the same request succeeds.
    """

    def __init__(
        self, chat: ChatModel, *, auth_tokens: Sequence[str], is_open: Callable[[str], bool] | None = None
    ) -> None:
        if not auth_tokens or not all(token.strip() for token in auth_tokens):
            raise ValueError("the chat endpoint needs a non-empty auth token")
        self._chat = chat
        self._tokens = tuple(auth_tokens)
        self._is_open = is_open
        self._calls: defaultdict[str, set[asyncio.Task[bytes]]] = defaultdict(set)
        self._unanswered: defaultdict[str, dict[int, str]] = defaultdict(dict)

    @property
    def route(self) -> Route:
        """The route to mount in the listener's app."""
        return Route("/v1/rollouts/{rollout_id}/chat/completions", self._asgi, methods=["POST"])

    def unanswered(self, rollout_id: str) -> str | None:
        """Why the policy could not answer a call of this rollout, if it could not."""
        return next(iter(self._unanswered.get(rollout_id, {}).values()), None)

    def close(self, rollout_id: str) -> None:
        """Cancel the calls in flight of an ended rollout and forget it."""
        for call in self._calls.pop(rollout_id, set()):
            call.cancel()
        self._unanswered.pop(rollout_id, None)

    def close_all(self) -> None:
        """Cancel every call in flight."""
        for rollout_id in list(self._calls):
            self.close(rollout_id)

    async def _asgi(self, request: Request) -> Response:
        return _Deferred(await self._answer(request))

    async def _answer(self, request: Request) -> "ChatResponse | Response":
        try:
            rollout_id, body = await self._accept(request)
        except ChatError as error:
            return error_response(error)
        stream = body.pop("stream", None) is True
        body.pop("stream_options", None)
        body.pop("n", None)
        is_client_retry.set(request.headers.get("x-stainless-retry-count", "0") != "0")
        call = asyncio.create_task(self._complete(rollout_id, body, stream=stream))
        calls = self._calls[rollout_id]
        calls.add(call)
        call.add_done_callback(calls.discard)
        return ChatResponse(call, stream=stream)

    async def _accept(self, request: Request) -> tuple[str, dict[str, Any]]:
        if not has_bearer(request, self._tokens):
            raise _refusal(401, "missing or wrong bearer token", "authentication_error")
        rollout_id = request.path_params["rollout_id"]
        if not is_single_path_segment(rollout_id):
            raise _refusal(422, "invalid rollout_id")
        try:
            body = decode_strict(await read_body(request))
        except BodyTooLargeError as error:
            raise _refusal(413, str(error)) from None
        except StrictJsonError as error:
            place = ".".join(map(str, error.path))
            raise _invalid_body(f"{place + ': ' if place else ''}{error}") from None
        if not isinstance(body, dict):
            raise _invalid_body("a JSON object is required")
        if not isinstance(body.get("messages"), list) or not body["messages"]:
            raise _invalid_body("'messages' must be a non-empty list")
        if body.get("n") not in (None, 1):
            raise _refusal(400, "'n' must be 1: a rollout has one sample")
        if self._is_open is not None and not self._is_open(rollout_id):
            raise _refusal(404, f"rollout {rollout_id!r} is not open", code="rollout_closed")
        return rollout_id, body

    async def _complete(self, rollout_id: str, body: dict[str, Any], *, stream: bool) -> bytes:
        key = hash(json.dumps(body, sort_keys=True))
        try:
            answer = encode_completion(await self._chat.complete(rollout_id, body), stream=stream)
        except ChatError as error:
            if error.infrastructure:
                self._unanswered[rollout_id][key] = error.message
            raise
        except Exception as error:
            logger.exception("the policy failed on a call of rollout %s", rollout_id)
            message = f"the policy failed: {type(error).__name__}"
            self._unanswered[rollout_id][key] = message
            raise ChatError(message, status=500, infrastructure=True) from error
        if rollout_id in self._unanswered:
            self._unanswered[rollout_id].pop(key, None)
        return answer


class _Deferred(Response):
    """Lets an endpoint function return any ASGI response."""

    def __init__(self, inner: ChatResponse | Response) -> None:
        super().__init__()
        self._inner = inner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._inner(scope, receive, send)


def _refusal(
    status: int, message: str, type: str = "invalid_request_error", code: str | None = None
) -> ChatError:
    return ChatError(message, status=status, type=type, code=code)


def _invalid_body(problem: str) -> ChatError:
    return ChatError(
        f"invalid body: {problem}", status=400, type="invalid_request_error", detail="invalid body"
    )

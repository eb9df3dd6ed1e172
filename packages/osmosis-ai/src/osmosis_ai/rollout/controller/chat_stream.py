"""Chat completions on the wire: plain JSON, or server-sent events when the client asked for a stream."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from osmosis_ai.rollout.controller.chat import ChatError

HEARTBEAT_SEC = 15.0

_STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


def encode_completion(completion: dict[str, Any], *, stream: bool) -> bytes:
    """A ``chat.completion`` as the body of an answer: JSON, or the events of a stream without their end.

    Raises :class:`ChatError` when it has no choice (an empty delta would be read as an empty answer of the model), or no
    form in JSON, as NaN among the log-probabilities has none.
    """
    if not completion.get("choices"):
        raise ChatError("the policy returned no choices", infrastructure=True)
    try:
        if stream:
            return b"".join(_event(chunk) for chunk in _chunks(completion))
        return _json(completion)
    except (TypeError, ValueError, LookupError, AttributeError, RecursionError) as error:
        raise ChatError(
            f"the policy's answer is no chat completion: {type(error).__name__}: {error}", infrastructure=True
        ) from error


def _chunks(completion: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The whole delta, the finish reason and the usage, as ``chat.completion.chunk`` objects."""
    base = {key: completion.get(key) for key in ("id", "created", "model")}
    base["object"] = "chat.completion.chunk"
    for choice in completion["choices"]:
        index = choice.get("index", 0)
        delta = {key: value for key, value in choice["message"].items() if value is not None}
        if delta.get("tool_calls"):
            delta["tool_calls"] = [{"index": i, **call} for i, call in enumerate(delta["tool_calls"])]
        first = {"index": index, "delta": delta, "finish_reason": None}
        if choice.get("logprobs") is not None:
            first["logprobs"] = choice["logprobs"]
        yield {**base, "choices": [first]}
        yield {
            **base,
            "choices": [{"index": index, "delta": {}, "finish_reason": choice.get("finish_reason")}],
        }
    if completion.get("usage") is not None:
        yield {**base, "choices": [], "usage": completion["usage"]}


class ChatResponse:
    """An ASGI response that waits for the encoded answer of ``call`` and cancels it when the client hangs up."""

    def __init__(self, call: asyncio.Task[bytes], *, stream: bool) -> None:
        self._call = call
        self._stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        hang_up = asyncio.create_task(_until_disconnect(receive))
        try:
            if self._stream:
                await self._send_stream(send, hang_up)
            else:
                await self._send_json(scope, receive, send, hang_up)
        finally:
            hang_up.cancel()
            self._call.cancel()
            await asyncio.gather(hang_up, self._call, return_exceptions=True)

    async def _send_json(
        self, scope: Scope, receive: Receive, send: Send, hang_up: asyncio.Task[None]
    ) -> None:
        await asyncio.wait({self._call, hang_up}, return_when=asyncio.FIRST_COMPLETED)
        if not self._call.done():
            return
        try:
            response = Response(_outcome(self._call), media_type="application/json")
        except ChatError as error:
            response = error_response(error)
        await response(scope, receive, send)

    async def _send_stream(self, send: Send, hang_up: asyncio.Task[None]) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": _STREAM_HEADERS})
        await _write(send, b": ping\n\n")
        while True:
            waiting = {self._call, hang_up}
            await asyncio.wait(waiting, timeout=HEARTBEAT_SEC, return_when=asyncio.FIRST_COMPLETED)
            if self._call.done():
                break
            if hang_up.done():
                return
            await _write(send, b": ping\n\n")
        try:
            events = _outcome(self._call)
        except ChatError as error:
            events = b"event: error\n" + _event({"error": error.body()["error"]})
        await _write(send, events + b"data: [DONE]\n\n", more=False)


def error_response(error: ChatError) -> Response:
    """A refusal in the shape OpenAI clients read."""
    headers = {} if error.retry_after is None else {"Retry-After": f"{error.retry_after:g}"}
    return Response(_json(error.body()), error.status, headers, "application/json")


def _outcome(call: asyncio.Task[bytes]) -> bytes:
    if call.cancelled():
        raise ChatError(
            "the rollout is over", status=404, type="invalid_request_error", code="rollout_closed"
        )
    return call.result()


async def _until_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _event(data: dict[str, Any]) -> bytes:
    return b"data: " + _json(data) + b"\n\n"


def _json(data: dict[str, Any]) -> bytes:
    # In ASCII: half characters, which models do write, have no form in UTF-8.
    return json.dumps(data, allow_nan=False, separators=(",", ":")).encode()


async def _write(send: Send, body: bytes, *, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": more})

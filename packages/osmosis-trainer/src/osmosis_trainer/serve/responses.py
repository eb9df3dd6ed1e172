"""The answer to a chat completion request on the wire: JSON or a stream of events, given up when the client leaves."""

from __future__ import annotations

import asyncio
import json
import logging
import time
import uuid
from typing import Any

from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from osmosis_trainer.chat.answer import Answer
from osmosis_trainer.chat.completion import chat_completion, choice, token_logprobs, usage
from osmosis_trainer.chat.errors import ChatRequestError
from osmosis_trainer.chat.request import ChatRequest
from osmosis_trainer.chat.stream import Delta
from osmosis_trainer.errors import ContextLengthError, TrainerError, UnknownAdapterError
from osmosis_trainer.serve.chunks import ChunkMaker
from osmosis_trainer.serve.generation import Generation
from osmosis_trainer.serve.registry import ModelRegistry, model_not_found

logger = logging.getLogger(__name__)

HEARTBEAT_S = 15.0
_STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


def error_response(error: ChatRequestError) -> JSONResponse:
    """A refusal as OpenAI clients read it."""
    headers = {"Retry-After": "1"} if error.status in (429, 503) else {}
    return JSONResponse(error.to_body(), status_code=error.status, headers=headers)


def refusal(error: TrainerError, model: str) -> ChatRequestError:
    """What a client is told of an error of codec or engine."""
    if isinstance(error, ChatRequestError):
        return error
    if isinstance(error, ContextLengthError):
        return ChatRequestError(str(error), code=error.code, param="messages")
    if isinstance(error, UnknownAdapterError):
        return model_not_found(model)
    return ChatRequestError(f"the model could not answer: {error}", code=error.code, status=503)


class CompletionResponse(Response):
    """Runs a request when it is sent. A client that hangs up cancels its sampling."""

    def __init__(self, registry: ModelRegistry, request: ChatRequest) -> None:
        super().__init__()
        self._registry = registry
        self._request = request
        self._id = f"chatcmpl-{uuid.uuid4().hex}"
        self._created = int(time.time())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or stop when the client is gone."""
        work = asyncio.ensure_future(self._answer(scope, receive, send))
        hang_up = asyncio.ensure_future(_until_disconnect(receive))
        try:
            await asyncio.wait({work, hang_up}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
        finally:
            work.cancel()
            hang_up.cancel()
            await asyncio.gather(work, hang_up, return_exceptions=True)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with self._registry.use(self._request.model) as model:
                generation = Generation.prepare(model, self._request)
                if self._request.stream:
                    await self._stream(generation, send)
                    return
                answers = await generation.run()
        except TrainerError as error:
            await error_response(refusal(error, self._request.model))(scope, receive, send)
            return
        await JSONResponse(self._completion(generation, answers))(scope, receive, send)

    def _completion(self, generation: Generation, answers: list[Answer]) -> dict[str, Any]:
        choices = []
        for index, answer in enumerate(answers):
            logprobs = None
            if self._request.logprobs:
                completion = answer.completion
                logprobs = token_logprobs(generation.model.codec, completion.token_ids, completion.logprobs)
            choices.append(choice(index, answer.message.to_message(), answer.finish_reason, logprobs))
        return chat_completion(
            self._id, self._request.model, self._created, choices, _usage(generation, answers)
        )

    async def _stream(self, generation: Generation, send: Send) -> None:
        """Send chunks as tokens come. Once begun, an error is an event of the stream."""
        make = ChunkMaker(self._id, self._request.model, self._created, self._request, generation.model.codec)
        outbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

        def on_delta(index: int, delta: Delta, token_id: int, logprob: float) -> None:
            chunk = make.token(index, delta, token_id, logprob)
            if chunk is not None:
                outbox.put_nowait(chunk)

        await send({"type": "http.response.start", "status": 200, "headers": _STREAM_HEADERS})
        await _write(send, b"".join(_event(make.first(index)) for index in range(self._request.n)))
        sampling = asyncio.ensure_future(generation.run(on_delta))
        try:
            await _forward(outbox, sampling, send)
            answers = sampling.result()
            closing = [chunk for index, answer in enumerate(answers) for chunk in make.last(index, answer)]
            if self._request.include_usage:
                closing.append(make.usage(_usage(generation, answers)))
            events = b"".join(_event(chunk) for chunk in closing)
        except TrainerError as error:
            events = _event(refusal(error, self._request.model).to_body())
        finally:
            sampling.cancel()
            await asyncio.gather(sampling, return_exceptions=True)
        await _write(send, events + b"data: [DONE]\n\n", more=False)


async def _forward(
    outbox: asyncio.Queue[dict[str, Any]], sampling: asyncio.Future[list[Answer]], send: Send
) -> None:
    """Send what arrives in `outbox` until the sampling is over; what gathered meanwhile goes in one write."""
    while not (sampling.done() and outbox.empty()):
        arrival = asyncio.ensure_future(outbox.get())
        try:
            waiting: set[asyncio.Future[Any]] = {arrival, sampling}
            await asyncio.wait(waiting, timeout=HEARTBEAT_S, return_when=asyncio.FIRST_COMPLETED)
            events = b": ping\n\n" if not sampling.done() else b""
            if arrival.done():
                chunks = [arrival.result()]
                while not outbox.empty():
                    chunks.append(outbox.get_nowait())
                events = b"".join(_event(chunk) for chunk in chunks)
        finally:
            arrival.cancel()
            await asyncio.gather(arrival, return_exceptions=True)
        if events:
            await _write(send, events)


def _usage(generation: Generation, answers: list[Answer]) -> dict[str, Any]:
    sampled = sum(len(answer.completion.token_ids) for answer in answers)
    return usage(len(generation.prompt_ids), sampled, answers[0].completion.cached_tokens)


async def _until_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _event(data: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


async def _write(send: Send, body: bytes, *, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": more})

"""Sampling one answer to a prompt: engine tokens, stop strings and the parsed message together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from osmosis_trainer.chat.codec import CallNamer, ChatCodec
from osmosis_trainer.chat.messages import Tool
from osmosis_trainer.chat.parsed import ParsedMessage
from osmosis_trainer.chat.stream import AnswerStream, Delta
from osmosis_trainer.engines.protocol import Completion, Engine, SamplingParams

FinishReason = Literal["stop", "length", "tool_calls"]


@dataclass(frozen=True, slots=True)
class Answer:
    """Sampled tokens and the message in them. `last` is the text that no streamed delta carried."""

    completion: Completion
    message: ParsedMessage
    finish_reason: FinishReason
    last: Delta


OnDelta = Callable[[Delta, int, float], None]
"""Called per sampled token with the text it made certain, its id and its log-probability."""


async def sample_answer(
    engine: Engine,
    codec: ChatCodec,
    prompt_ids: Sequence[int],
    params: SamplingParams,
    *,
    adapter: str | None,
    offered: Sequence[Tool] = (),
    stops: Sequence[str] = (),
    name_call: CallNamer | None = None,
    on_delta: OnDelta | None = None,
    parallel_tool_calls: bool = True,
) -> Answer:
    """Sample until an end token, a stop string (not part of the text, but its tokens were sampled) or the limit.

    Cancelling this cancels the sampling. Raises what the engine raises.
    """
    if not stops and on_delta is None:
        completion = await engine.sample(prompt_ids, params, adapter=adapter)
        message, last = codec.parse(completion.token_ids, offered, name_call=name_call), Delta()
    else:
        stream = AnswerStream(codec, offered, stops)
        completion = await _sample_watched(engine, prompt_ids, params, adapter, stream, on_delta)
        message, last = stream.finish(name_call)
    if not parallel_tool_calls and len(message.tool_calls) > 1:
        message = ParsedMessage(message.content, message.reasoning, message.tool_calls[:1], message.outcome)
    finish: FinishReason = completion.finish_reason
    if finish == "stop" and message.tool_calls:
        finish = "tool_calls"
    return Answer(completion, message, finish, last)


async def _sample_watched(
    engine: Engine,
    prompt_ids: Sequence[int],
    params: SamplingParams,
    adapter: str | None,
    stream: AnswerStream,
    on_delta: OnDelta | None,
) -> Completion:
    """Sample with a watch on every token; a complete stop string ends the sampling there."""
    token_ids: list[int] = []
    logprobs: list[float] = []
    version = engine.policy_version
    stopped = asyncio.Event()

    def on_token(token_id: int, logprob: float) -> None:
        if stopped.is_set():
            return
        token_ids.append(token_id)
        logprobs.append(logprob)
        delta = stream.push(token_id)
        if on_delta is not None:
            on_delta(delta, token_id, logprob)
        if stream.stopped:
            stopped.set()

    sampling = asyncio.ensure_future(engine.sample(prompt_ids, params, adapter=adapter, on_token=on_token))
    watch = asyncio.ensure_future(stopped.wait())
    try:
        await asyncio.wait({sampling, watch}, return_when=asyncio.FIRST_COMPLETED)
        if stopped.is_set():
            cached = sampling.result().cached_tokens if sampling.done() else 0
            return Completion(token_ids, logprobs, "stop", version, cached)
        return await sampling
    finally:
        watch.cancel()
        sampling.cancel()
        await asyncio.gather(watch, sampling, return_exceptions=True)

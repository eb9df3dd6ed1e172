"""A streamed answer as `chat.completion.chunk` objects."""

from __future__ import annotations

from typing import Any

from osmosis_trainer.chat.answer import Answer
from osmosis_trainer.chat.codec import ChatCodec
from osmosis_trainer.chat.completion import token_logprobs
from osmosis_trainer.chat.request import ChatRequest
from osmosis_trainer.chat.stream import Delta


class ChunkMaker:
    """Makes the chunks of one response. Log-probabilities travel with the next text, or with the last chunk."""

    def __init__(
        self, completion_id: str, model: str, created: int, request: ChatRequest, codec: ChatCodec
    ) -> None:
        self._base = {
            "id": completion_id,
            "object": "chat.completion.chunk",
            "created": created,
            "model": model,
        }
        self._with_usage = request.include_usage
        self._codec = codec
        self._logprobs: list[list[tuple[int, float]]] | None = (
            [[] for _ in range(request.n)] if request.logprobs else None
        )

    def first(self, index: int) -> dict[str, Any]:
        """Tells the role, before anything was sampled."""
        return self._chunk(index, {"role": "assistant", "content": ""})

    def token(self, index: int, delta: Delta, token_id: int, logprob: float) -> dict[str, Any] | None:
        """The chunk of one sampled token; None while its text is not certain."""
        if self._logprobs is not None:
            self._logprobs[index].append((token_id, logprob))
        return self._chunk(index, _fields(delta)) if delta else None

    def last(self, index: int, answer: Answer) -> list[dict[str, Any]]:
        """What the deltas did not carry, tool calls, and why the answer ended."""
        fields = _fields(answer.last)
        if answer.message.tool_calls:
            fields["tool_calls"] = [
                {"index": i, **call.to_dict()} for i, call in enumerate(answer.message.tool_calls)
            ]
        chunks = [self._chunk(index, fields)] if fields else []
        return [*chunks, self._chunk(index, {}, answer.finish_reason)]

    def usage(self, used: dict[str, Any]) -> dict[str, Any]:
        """The closing chunk of a stream that was asked for usage."""
        return {**self._base, "choices": [], "usage": used}

    def _chunk(self, index: int, delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": index, "delta": delta, "finish_reason": finish_reason}
        if self._logprobs is not None and self._logprobs[index]:
            pairs, self._logprobs[index] = self._logprobs[index], []
            choice["logprobs"] = token_logprobs(self._codec, [p[0] for p in pairs], [p[1] for p in pairs])
        chunk: dict[str, Any] = {**self._base, "choices": [choice]}
        if self._with_usage:
            chunk["usage"] = None
        return chunk


def _fields(delta: Delta) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if delta.reasoning:
        fields["reasoning_content"] = delta.reasoning
    if delta.content:
        fields["content"] = delta.content
    return fields

"""Answers in the shapes of the OpenAI API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from osmosis_trainer.chat.codec import ChatCodec


def usage(prompt_tokens: int, completion_tokens: int, cached_tokens: int) -> dict[str, Any]:
    """Token counts of a request, over all its choices."""
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": cached_tokens},
    }


def token_logprobs(codec: ChatCodec, token_ids: Sequence[int], logprobs: Sequence[float]) -> dict[str, Any]:
    """The `logprobs` object of a choice: every sampled token, natural logarithms."""
    texts = [codec.decode_raw([token_id]) for token_id in token_ids]
    return {
        "content": [
            {"token": text, "logprob": logprob, "bytes": list(text.encode()), "top_logprobs": []}
            for text, logprob in zip(texts, logprobs, strict=True)
        ],
        "refusal": None,
    }


def choice(
    index: int, message: Mapping[str, Any], finish_reason: str, logprobs: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """One choice of a plain answer."""
    return {"index": index, "message": dict(message), "logprobs": logprobs, "finish_reason": finish_reason}


def chat_completion(
    completion_id: str,
    model: str,
    created: int,
    choices: Sequence[Mapping[str, Any]],
    used: Mapping[str, Any],
) -> dict[str, Any]:
    """A whole `chat.completion` object; `created` is in Unix seconds."""
    return {
        "id": completion_id,
        "object": "chat.completion",
        "created": created,
        "model": model,
        "choices": [dict(item) for item in choices],
        "usage": dict(used),
    }

"""A chat completion request, checked. What the model cannot honour is refused, never ignored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from osmosis_trainer.chat.errors import ChatRequestError
from osmosis_trainer.chat.messages import Message, Tool, normalise_messages, normalise_tools

MAX_CHOICES = 8
MAX_STOPS = 4

# Fields that would change the answer and that no engine of ours implements; the value is the one that asks for nothing.
UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "response_format": (None, {"type": "text"}),
    "logit_bias": (None, {}),
    "presence_penalty": (None, 0),
    "frequency_penalty": (None, 0),
    "functions": (None, []),
    "function_call": (None, "none", "auto"),
    "audio": (None,),
    "modalities": (None, ["text"]),
    "top_logprobs": (None, 0),
    "prediction": (None,),
    "top_k": (None, 0, -1),
    "min_p": (None, 0),
    "repetition_penalty": (None, 1),
}


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """What a client asked for; None means that it left the choice to the server.

    `offered` are the tools whose calls are looked for: none with `tool_choice` "none". `max_tokens` counts new tokens.
    """

    model: str
    messages: list[Message]
    tools: list[Tool]
    offered: list[Tool]
    temperature: float | None
    top_p: float | None
    max_tokens: int | None
    stop: tuple[str, ...]
    seed: int | None
    n: int
    stream: bool
    include_usage: bool
    logprobs: bool
    parallel_tool_calls: bool

    @classmethod
    def parse(cls, body: Any) -> ChatRequest:
        """Check a request body; raises ChatRequestError naming the field that is wrong."""
        if not isinstance(body, Mapping):
            raise ChatRequestError("the request body must be a JSON object")
        for field, neutral in UNSUPPORTED.items():
            if field in body and body[field] not in neutral:
                raise ChatRequestError(f"{field} is not supported by this server; leave it out", param=field)
        tools = normalise_tools(body.get("tools"))
        options = body.get("stream_options")
        return cls(
            model=_model(body),
            messages=normalise_messages(body.get("messages")),
            tools=tools,
            offered=tools if _tool_choice(body) == "auto" else [],
            temperature=_number(body, "temperature", 0.0, 2.0),
            top_p=_top_p(body),
            max_tokens=_max_tokens(body),
            stop=_stop(body),
            seed=_integer(body, "seed", -(2**63), 2**64 - 1),
            n=_integer(body, "n", 1, MAX_CHOICES) or 1,
            stream=bool(body.get("stream")),
            include_usage=bool(isinstance(options, Mapping) and options.get("include_usage")),
            logprobs=bool(body.get("logprobs")),
            parallel_tool_calls=body.get("parallel_tool_calls") is not False,
        )


def _model(body: Mapping[str, Any]) -> str:
    model = body.get("model", "")
    if not isinstance(model, str):
        raise ChatRequestError("model must be a string", param="model")
    return model


def _tool_choice(body: Mapping[str, Any]) -> str:
    choice = body.get("tool_choice")
    if choice in (None, "auto"):
        return "auto"
    if choice == "none":
        return "none"
    raise ChatRequestError(
        f"tool_choice {choice!r} is not supported: answers are not constrained; use 'auto' or 'none'",
        param="tool_choice",
    )


def _number(body: Mapping[str, Any], field: str, low: float, high: float) -> float | None:
    value = body.get(field)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise ChatRequestError(
            f"{field} is {value!r}; it must be a number from {low:g} to {high:g}", param=field
        )
    return float(value)


def _integer(body: Mapping[str, Any], field: str, low: int, high: int) -> int | None:
    value = body.get(field)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ChatRequestError(
            f"{field} is {value!r}; it must be an integer from {low} to {high}", param=field
        )
    return value


def _top_p(body: Mapping[str, Any]) -> float | None:
    value = _number(body, "top_p", 0.0, 1.0)
    if value == 0.0:
        raise ChatRequestError(
            "top_p is 0; it must be above 0 (use temperature 0 for greedy answers)", param="top_p"
        )
    return value


def _max_tokens(body: Mapping[str, Any]) -> int | None:
    limits = [_integer(body, field, 1, 2**31) for field in ("max_completion_tokens", "max_tokens")]
    given = [limit for limit in limits if limit is not None]
    return min(given) if given else None


def _stop(body: Mapping[str, Any]) -> tuple[str, ...]:
    stop = body.get("stop")
    stops = [] if stop is None else [stop] if isinstance(stop, str) else stop
    if not isinstance(stops, list) or not all(isinstance(text, str) and text for text in stops):
        raise ChatRequestError("stop must be a non-empty string or a list of them", param="stop")
    if len(stops) > MAX_STOPS:
        raise ChatRequestError(
            f"stop has {len(stops)} strings; at most {MAX_STOPS} are allowed", param="stop"
        )
    return tuple(stops)

"""Which parameters of a request the served endpoint knows, so that a misspelt one is told and not ignored.

Only here: agents in rollouts speak to the gateway, which takes whatever their framework adds.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from osmosis_trainer.chat.errors import ChatRequestError
from osmosis_trainer.chat.request import UNSUPPORTED

HONOURED = frozenset(
    {
        *("model", "messages", "tools", "tool_choice", "parallel_tool_calls", "temperature", "top_p"),
        *("max_completion_tokens", "max_tokens", "stop", "seed", "n", "logprobs", "stream", "stream_options"),
    }
)
# Clients and agent frameworks send these by themselves, to book a request, to route it, or as a hint.
WITHOUT_EFFECT = frozenset(
    {
        *("user", "safety_identifier", "metadata", "store", "service_tier", "session_id"),
        *("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "return_token_ids"),
        *("reasoning_effort", "verbosity"),
    }
)
_FLAGS = ("stream", "logprobs", "parallel_tool_calls")
_STREAM_OPTIONS = ("include_usage", "include_obfuscation")


def check_parameters(body: Any) -> None:
    """Raise ChatRequestError for a parameter that the endpoint does not know, or a flag that is neither true nor false.

    Null counts as left out.
    """
    if not isinstance(body, Mapping):
        return
    _known(body, HONOURED | WITHOUT_EFFECT | UNSUPPORTED.keys(), HONOURED)
    _flags(body, _FLAGS)
    options = body.get("stream_options")
    if options is None:
        return
    if not isinstance(options, Mapping):
        raise ChatRequestError("stream_options must be an object", param="stream_options")
    _known(options, _STREAM_OPTIONS, _STREAM_OPTIONS, "stream_options.")
    _flags(options, _STREAM_OPTIONS, "stream_options.")


def _known(given: Mapping[str, Any], names: Any, suggested: Any, inside: str = "") -> None:
    for name, value in given.items():
        if name in names or value is None:
            continue
        close = difflib.get_close_matches(name[:64], sorted(suggested), n=1, cutoff=0.75)
        advice = f"did you mean {inside}{close[0]}?" if close else "leave it out"
        shown = f"{inside}{name[:64]}"
        raise ChatRequestError(f"{shown} is not a parameter of this endpoint; {advice}", param=shown)


def _flags(given: Mapping[str, Any], names: tuple[str, ...], inside: str = "") -> None:
    for name in names:
        value = given.get(name)
        if value is not None and not isinstance(value, bool):
            raise ChatRequestError(
                f"{inside}{name} is {value!r}; it must be true or false", param=f"{inside}{name}"
            )

"""From an ATIF document back to chat messages."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from osmosis_ai.rollout.types.sample import MessageDict

_ROLES = {"user": "user", "agent": "assistant", "system": "system"}


def messages_from_trajectory(document: Any) -> list[MessageDict]:
    """The chat messages of a parsed trajectory file, none when it is no such document.

    Every step becomes a message, and each result that a step observed a ``tool`` message behind it. A document with a
    ``messages`` list keeps them as they are.
    """
    if not isinstance(document, Mapping):
        return []
    messages = document.get("messages")
    if isinstance(messages, list):
        return messages
    steps = document.get("steps")
    return [
        message
        for step in (steps if isinstance(steps, list) else [])
        if isinstance(step, Mapping)
        for message in _of_step(step)
    ]


def _of_step(step: Mapping[str, Any]) -> Iterator[MessageDict]:
    source = step.get("source")
    role = _ROLES.get(source, "tool") if isinstance(source, str) else "tool"
    message: MessageDict = {"role": role, "content": _content(step.get("message"))}
    if calls := [_tool_call(call) for call in _mappings(step.get("tool_calls"))]:
        message["tool_calls"] = calls
    yield message
    observation = step.get("observation")
    for result in _mappings(observation.get("results") if isinstance(observation, Mapping) else None):
        observed: MessageDict = {"role": "tool", "content": _content(result.get("content"))}
        if (call_id := result.get("source_call_id")) is not None:
            observed["tool_call_id"] = call_id
        yield observed


def _tool_call(call: Mapping[str, Any]) -> dict[str, Any]:
    arguments = call.get("arguments")
    return {
        "id": call.get("tool_call_id"),
        "type": "function",
        "function": {
            "name": call.get("function_name"),
            "arguments": arguments if isinstance(arguments, str) else json.dumps(arguments or {}),
        },
    }


def _content(value: Any) -> Any:
    return "" if value is None else value


def _mappings(value: Any) -> Iterator[Mapping[str, Any]]:
    return (item for item in (value if isinstance(value, list) else []) if isinstance(item, Mapping))

"""OpenAI chat messages and tools in one shape, whatever shape an agent framework sent them in.

Frameworks differ: content as text or as a list of parts, assistant tool turns without content, arguments as JSON text or
as an object, several system messages in a row. A normalised message always has `role` and text `content`; an assistant
message has `tool_calls` only when there are any, with arguments as an object where they are one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from osmosis_trainer.chat.errors import ChatRequestError

Message = dict[str, Any]
Tool = dict[str, Any]

ROLES = ("system", "developer", "user", "assistant", "tool")
TEXT_PARTS = ("text", "input_text", "output_text")


def normalise_messages(messages: Any) -> list[Message]:
    """Check and normalise `messages`; leading system messages become one, joined by an empty line. Idempotent."""
    if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
        raise ChatRequestError("messages must be a non-empty list", param="messages")
    normal = [_message(message, f"messages[{i}]") for i, message in enumerate(messages)]
    leading = 0
    while leading < len(normal) and normal[leading]["role"] == "system":
        leading += 1
    if leading > 1:
        joined = "\n\n".join(message["content"] for message in normal[:leading])
        normal[:leading] = [{"role": "system", "content": joined}]
    return normal


def normalise_tools(tools: Any) -> list[Tool]:
    """Check `tools`; schemas are passed on untouched, because the model reads every byte of them."""
    if tools is None:
        return []
    if not isinstance(tools, Sequence) or isinstance(tools, str):
        raise ChatRequestError("tools must be a list", param="tools")
    for i, tool in enumerate(tools):
        function = tool.get("function") if isinstance(tool, Mapping) else None
        if not isinstance(function, Mapping) or tool.get("type", "function") != "function":
            raise ChatRequestError(f"tools[{i}] must be a function tool", param=f"tools[{i}]")
        if not isinstance(function.get("name"), str) or not function["name"]:
            raise ChatRequestError(
                f"tools[{i}].function.name must be a non-empty string", param=f"tools[{i}]"
            )
    return [dict(tool) for tool in tools]


def tool_names(tools: Sequence[Tool]) -> frozenset[str]:
    """Names of the functions in normalised `tools`."""
    return frozenset(tool["function"]["name"] for tool in tools)


def _message(message: Any, where: str) -> Message:
    if not isinstance(message, Mapping):
        raise ChatRequestError(f"{where} must be an object", param=where)
    role = message.get("role")
    if role not in ROLES:
        raise ChatRequestError(
            f"{where}.role is {role!r}; known roles are {', '.join(ROLES)}", param=f"{where}.role"
        )
    if role == "developer":
        role = "system"
    content = message.get("content")
    if content is None and role in ("system", "user"):
        raise ChatRequestError(f"{where}.content is missing", param=f"{where}.content")
    normal: Message = {"role": role, "content": _text(content, f"{where}.content")}
    if role == "assistant":
        calls = message.get("tool_calls")
        if calls is not None and not isinstance(calls, list | tuple):
            raise ChatRequestError(f"{where}.tool_calls must be a list", param=f"{where}.tool_calls")
        if calls:
            normal["tool_calls"] = [_call(call, f"{where}.tool_calls[{i}]") for i, call in enumerate(calls)]
        reasoning = message.get("reasoning_content")
        if isinstance(reasoning, str) and reasoning:
            normal["reasoning_content"] = reasoning
    if role == "tool":
        normal["tool_call_id"] = str(message.get("tool_call_id") or "")
        if isinstance(message.get("name"), str):
            normal["name"] = message["name"]
    return normal


def _text(content: Any, where: str) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return _encodable(content, where)
    if not isinstance(content, Sequence):
        raise ChatRequestError(f"{where} must be text or a list of text parts", param=where)
    texts = []
    for i, part in enumerate(content):
        kind = part.get("type", "text") if isinstance(part, Mapping) else None
        text = part.get("refusal" if kind == "refusal" else "text") if isinstance(part, Mapping) else part
        if kind not in (*TEXT_PARTS, "refusal", None) or not isinstance(text, str):
            raise ChatRequestError(
                f"{where}[{i}] is a part of type {kind!r}; this model reads text parts only",
                param=f"{where}[{i}]",
            )
        texts.append(text)
    return _encodable("".join(texts), where)


def _encodable(text: str, where: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ChatRequestError(
            f"{where} holds half of a surrogate pair at character {error.start}; send valid Unicode",
            param=where,
        ) from None
    return text


def _call(call: Any, where: str) -> Message:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise ChatRequestError(f"{where} must be a function call with a name", param=where)
    arguments = function.get("arguments")
    if arguments is None or arguments == "":
        arguments = {}
    if isinstance(arguments, str):
        try:
            read = json.loads(arguments)
        except ValueError:
            read = None
        arguments = read if isinstance(read, dict) else arguments
    elif isinstance(arguments, Mapping):
        arguments = dict(arguments)
    else:
        raise ChatRequestError(f"{where}.function.arguments must be JSON text", param=where)
    return {
        "id": str(call.get("id") or ""),
        "type": "function",
        "function": {"name": function["name"], "arguments": arguments},
    }

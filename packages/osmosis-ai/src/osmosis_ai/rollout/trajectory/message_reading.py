"""Reading usage, time, model, text and tool calls out of one chat message, whatever its producer left there."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, ValidationError

from osmosis_ai.rollout.trajectory.atif import Metrics, ToolCall
from osmosis_ai.rollout.utils.strict_json import MAX_JSON_DEPTH, deeper_than

_TIMESTAMP_KEYS = ("created_at", "timestamp", "completed_at")
_DETAIL_KEYS = (
    "prompt_tokens_details",
    "input_tokens_details",
    "completion_tokens_details",
    "output_tokens_details",
)


def text_of(value: Any) -> str:
    """Content as text: text parts joined by newlines, anything else as JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(_is_text_part(part) for part in value):
        return "\n".join(part["text"] for part in value)
    return _json_text(value)


def reasoning_of(message: Mapping[str, Any]) -> str | None:
    """The reasoning of a message; anything but text as JSON."""
    value = message.get("reasoning_content")
    return value if value is None or isinstance(value, str) else _json_text(value)


def _json_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _is_text_part(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("type") == "text" and isinstance(part.get("text"), str)


def timestamp_of(message: Mapping[str, Any]) -> str | None:
    """The first usable time of the message as ISO 8601; numbers are seconds since 1970, in UTC."""
    candidates = [message.get(key) for key in _TIMESTAMP_KEYS]
    candidates.append(_as_mapping(message.get("extra")).get("timestamp"))
    for candidate in candidates:
        if candidate is None:
            continue
        try:
            if isinstance(candidate, int | float) and not isinstance(candidate, bool):
                return datetime.fromtimestamp(candidate, UTC).isoformat()
            if isinstance(candidate, str):
                return datetime.fromisoformat(candidate).isoformat()
        except (ValueError, OverflowError, OSError):
            continue
    return None


def model_name_of(message: Mapping[str, Any]) -> str | None:
    """The model that wrote an assistant message."""
    response = _as_mapping(_as_mapping(message.get("extra")).get("response"))
    for candidate in (message.get("model"), message.get("model_name"), response.get("model")):
        if isinstance(candidate, str) and candidate:
            return candidate
    return None


def metrics_of(message: Mapping[str, Any]) -> Metrics | None:
    """The usage of the call behind an assistant message, or None when there is none or it makes no sense."""
    response = _as_mapping(_as_mapping(message.get("extra")).get("response"))
    usage = _as_mapping(message.get("usage")) or _as_mapping(response.get("usage"))
    if not usage:
        return None
    values: dict[str, Any] = {
        "prompt_tokens": _first(usage, "prompt_tokens", "input_tokens"),
        "completion_tokens": _first(usage, "completion_tokens", "output_tokens"),
        "cached_tokens": _cached_tokens(usage),
        "cost_usd": usage.get("cost_usd"),
        "extra": {key: dict(details) for key in _DETAIL_KEYS if (details := _as_mapping(usage.get(key)))}
        or None,
    }
    present = {key: value for key, value in values.items() if value is not None}
    if not present:
        return None
    try:
        return Metrics.model_validate(present)
    except ValidationError:
        return None


def _cached_tokens(usage: Mapping[str, Any]) -> Any:
    for source in (usage, usage.get("prompt_tokens_details"), usage.get("input_tokens_details")):
        cached = _as_mapping(source).get("cached_tokens")
        if cached is not None:
            return cached
    return None


def tool_calls_of(message: Mapping[str, Any]) -> list[ToolCall] | None:
    """The tool calls of a message; whatever is no list counts as none."""
    calls = message.get("tool_calls")
    if not isinstance(calls, list):
        return None
    return [_tool_call(index, _as_mapping(call)) for index, call in enumerate(calls)] or None


def _tool_call(index: int, call: Mapping[str, Any]) -> ToolCall:
    function = _as_mapping(call.get("function")) or _as_mapping(call.get("custom"))
    identity = call.get("id")
    return ToolCall(
        tool_call_id=f"call_{index}" if identity in (None, "") else str(identity),
        function_name=str(function.get("name") or "unknown"),
        arguments=_arguments(function.get("arguments", function.get("input"))),
    )


def _arguments(raw: Any) -> dict[str, Any]:
    if raw is None or raw == "":
        return {}
    if isinstance(raw, Mapping):
        return dict(raw)
    if not isinstance(raw, str):
        return {"_raw": text_of(raw)}
    try:
        parsed = json.loads(raw)
    except (ValueError, RecursionError):
        return {"_raw": raw}
    # A model that writes brackets without end must not cost the whole document.
    return parsed if isinstance(parsed, dict) and not deeper_than(parsed, MAX_JSON_DEPTH) else {"_raw": raw}


def _first(usage: Mapping[str, Any], *keys: str) -> Any:
    return next((usage[key] for key in keys if usage.get(key) is not None), None)


def _as_mapping(value: Any) -> Mapping[str, Any]:
    if value is None or isinstance(value, dict):
        return value or {}
    # Client libraries hand out usage as pydantic objects, which users copy onto messages as they are.
    if isinstance(value, BaseModel):
        return value.model_dump()
    return value if isinstance(value, Mapping) else {}

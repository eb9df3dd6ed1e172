"""The submit request as JSON Schema for the API's description, derived from the keys that the validator itself reads."""

from __future__ import annotations

from typing import Any

from osmosis_ai.config.schema import EXPERIMENT, SECTIONS, Key, RunKind
from osmosis_platform.runs.service import Kind

_TYPES = {"int": "integer", "float": "number", "bool": "boolean", "str": "string"}
_CONFIG_KINDS: dict[Kind, RunKind] = {"eval": "eval", "train": "training"}


def submit_schema(kind: Kind) -> dict[str, Any]:
    """The `requestBody` of a submit of this kind, as `openapi_extra` takes it."""
    properties: dict[str, Any] = {
        "experiment_config": {
            "type": "object",
            "additionalProperties": False,
            "required": [key.name for key in EXPERIMENT if key.required],
            "properties": {
                key.name: {"type": "string", "minLength": 1, "description": key.purpose} for key in EXPERIMENT
            },
        },
        "env_config": {
            "type": "object",
            "propertyNames": {"pattern": "^[A-Z_][A-Z0-9_]*$"},
            "additionalProperties": {"type": "string"},
        },
        "secrets": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "required": {"type": "array", "items": {"type": "string", "pattern": "^[A-Z][A-Z0-9_]*$"}},
                "provided": {"type": "object", "additionalProperties": {"type": "string"}},
            },
        },
    }
    for section, keys in SECTIONS[_CONFIG_KINDS[kind]].items():
        properties[f"{section}_config"] = _table(keys)
    schema = {
        "type": "object",
        "additionalProperties": False,
        "required": ["experiment_config"],
        "properties": properties,
    }
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def _table(keys: tuple[Key, ...]) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {key.name: {**_value(key), "description": key.purpose} for key in keys},
    }


def _value(key: Key) -> dict[str, Any]:
    if key.type == "table":
        return _table(key.keys)
    found: dict[str, Any] = {"type": _TYPES[key.type]}
    if key.choices:
        found["enum"] = list(key.choices)
    if key.minimum is not None:
        found["exclusiveMinimum" if key.above else "minimum"] = key.minimum
    if key.maximum is not None:
        found["maximum"] = key.maximum
    return found

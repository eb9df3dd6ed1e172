"""Making values that user code left in telemetry fit for JSON."""

import math
import numbers
from collections.abc import Mapping
from typing import Any

_DROP = object()
# Nothing that people write is nested deeper; what walks the values afterwards is recursive.
_MAX_DEPTH = 100


def json_safe_mapping(mapping: Mapping[str, Any]) -> tuple[Mapping[str, Any], set[str]]:
    """The mapping with everything JSON can carry, and the names of the types that were dropped.

    Foreign numbers (NumPy scalars, fractions) become int or float, tuples lists, numeric keys strings. NaN, infinities,
    objects JSON cannot express and values under other keys are dropped. The very same object comes back when it was fine.
    """
    dropped: set[str] = set()
    cleaned = _clean(mapping, dropped, ())
    return (cleaned if isinstance(cleaned, Mapping) else {}), dropped


def _clean(value: Any, dropped: set[str], parents: tuple[int, ...]) -> Any:
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else _drop(value, dropped)
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return _clean(float(value), dropped, parents)
    if isinstance(value, Mapping | list | tuple):
        # A container inside itself has no JSON form.
        if id(value) in parents or len(parents) >= _MAX_DEPTH:
            return _drop(value, dropped)
        inside = (*parents, id(value))
        return (
            _mapping(value, dropped, inside) if isinstance(value, Mapping) else _items(value, dropped, inside)
        )
    return _drop(value, dropped)


def _mapping(value: Mapping[Any, Any], dropped: set[str], parents: tuple[int, ...]) -> Any:
    cleaned: dict[str, Any] = {}
    changed = not isinstance(value, dict)
    for key, item in value.items():
        new_key = _clean_key(key)
        new_item = _drop(key, dropped) if new_key is None else _clean(item, dropped, parents)
        changed = changed or new_key is not key or new_item is not item
        if new_key is not None and new_item is not _DROP:
            cleaned[new_key] = new_item
    return cleaned if changed else value


def _items(value: list[Any] | tuple[Any, ...], dropped: set[str], parents: tuple[int, ...]) -> Any:
    cleaned = [_clean(item, dropped, parents) for item in value]
    if isinstance(value, list) and all(new is old for new, old in zip(cleaned, value, strict=True)):
        return value
    return [item for item in cleaned if item is not _DROP]


def _clean_key(key: Any) -> str | None:
    if isinstance(key, str):
        return key
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, numbers.Integral):
        return str(int(key))
    if isinstance(key, numbers.Real) and math.isfinite(float(key)):
        return str(float(key))
    return None


def _drop(value: Any, dropped: set[str]) -> Any:
    dropped.add(type(value).__name__)
    return _DROP

"""Strict JSON that changes nothing: no NaN or Infinity, no repeated keys, integers of up to 4300 digits, UTF-8 only.

Almost every text takes a fast way (the parser inside pydantic) whose one gap, keys that occur twice, is closed by counting
colons. Whatever the fast way refuses or leaves open is decided by the standard library.
"""

from __future__ import annotations

import json
import re
from typing import Any

from pydantic_core import from_json

from osmosis_ai.datasets.problems import shown

_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_HALF_PAIR = re.compile("[\ud800-\udfff]")
_AROUND = 15


class Digits(str):
    """A JSON number kept as its digits."""

    __slots__ = ()


def parse(raw: bytes) -> Any:
    """The value of a JSON text.

    Raises:
        ValueError: no strict JSON; the message says what and where.
        RecursionError: nested too deeply.
    """
    try:
        value = from_json(raw, allow_inf_nan=False, cache_strings="keys")
    except ValueError:
        return parse_by_the_book(raw)
    return value if colons_fit(raw, count_keys(value)) else parse_by_the_book(raw)


def parse_by_the_book(raw: bytes, *, digits: bool = False) -> Any:
    """As :func:`parse`, by the standard library alone; with `digits` every number is a `Digits`."""
    keep = Digits if digits else None
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"invalid UTF-8 at byte {error.start + 1}: {_around(raw, error.start)}") from None
    try:
        value = json.loads(
            text,
            parse_constant=_refuse,
            object_pairs_hook=_once,
            parse_int=keep or _integer,
            parse_float=keep,
        )
    except json.JSONDecodeError as error:
        raise ValueError(f"{error.msg} at character {error.pos + 1}: {_around(text, error.pos)}") from None
    if _SURROGATE_ESCAPE.search(text):
        _refuse_half_pairs(value)
    return value


def colons_fit(raw: bytes, keys: int) -> bool:
    """Whether the JSON text of a value with `keys` keys certainly repeats none of them.

    Each key has one colon outside of strings. If no more colons than keys can be outside of strings, no key was lost.
    """
    if keys == 0 or raw.count(b":") == keys:
        return True
    if (
        raw.count(b'":') == keys
        and b" :" not in raw
        and b"\t:" not in raw
        and b"\r:" not in raw
        and b"\n:" not in raw
    ):
        return True
    return _STRING.sub(b"", raw).count(b":") == keys


def count_keys(value: Any) -> int:
    """Number of keys of all objects inside a value."""
    if type(value) is dict:
        count, items = len(value), iter(value.values())
    elif type(value) is list:
        count, items = 0, iter(value)
    else:
        return 0
    for item in items:
        kind = type(item)
        if kind is dict or kind is list:
            count += count_keys(item)
    return count


def _refuse_half_pairs(value: Any) -> None:
    text = json.dumps(value, ensure_ascii=False)
    found = _HALF_PAIR.search(text)
    if found is not None:
        near = _around(text, found.start())
        raise ValueError(f"half of a surrogate pair, which is not a character: {near}")


def _integer(digits: str) -> int:
    try:
        return int(digits)
    except ValueError:  # Python converts a few thousand digits at most
        count = len(digits.lstrip("-"))
        raise ValueError(
            f"a number of {count:,} digits is too large; write it as text: {shown(digits)}"
        ) from None


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"duplicate key {key!r}")
            seen.add(key)
    return result


def _around(text: str | bytes, position: int) -> str:
    part = text[max(0, position - _AROUND) : position + _AROUND]
    return shown(part if isinstance(part, str) else part.decode("utf-8", "backslashreplace"))

"""JSON from the other side of a connection, read without trusting it."""

import json
import math
from collections.abc import Iterator
from typing import Any, NoReturn

# User code, trajectories and stores all walk these values, most of them recursively.
MAX_JSON_DEPTH = 128
MAX_BODY_BYTES = 256 * 2**20


class StrictJsonError(ValueError):
    """Text that is refused. ``path`` leads to the place, as far as there is one; ``kind`` is a stable code."""

    def __init__(self, message: str, *, kind: str, path: tuple[Any, ...] = ()) -> None:
        super().__init__(message)
        self.kind = kind
        self.path = path


def decode_strict(raw: bytes) -> Any:
    """The JSON value in ``raw``.

    Raises:
        StrictJsonError: when it is no JSON, holds NaN or an infinity, or is nested more than 128 levels deep.
    """
    try:
        value = _DECODER.decode(raw.decode("utf-8"))
    except RecursionError:
        raise _too_deep() from None
    except _NotFiniteError:
        raise _not_finite(raw) from None
    except ValueError as error:
        raise StrictJsonError(f"not JSON: {error}", kind="json_invalid") from None
    if deeper_than(value, MAX_JSON_DEPTH):
        raise _too_deep()
    return value


def check_strict(value: Any) -> None:
    """Refuse a JSON value that was read without care, at the first place in it that JSON in UTF-8 has no form for.

    Raises:
        StrictJsonError: NaN, an infinity or half of a surrogate pair stands in it, or it is nested more than 128 levels deep.
    """
    if deeper_than(value, MAX_JSON_DEPTH):
        raise _too_deep()
    for path, found in _places(value):
        if isinstance(found, float) and not math.isfinite(found):
            raise StrictJsonError("must be a finite number", kind="finite_number", path=path)
        for text in found if isinstance(found, dict) else (found,):
            if isinstance(text, str) and not _is_unicode(text):
                raise StrictJsonError(
                    "holds half of a surrogate pair; send valid Unicode", kind="not_unicode", path=path
                )


def place_of(path: tuple[Any, ...]) -> str:
    """A path as people write it: ``messages[0].content``."""
    text = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)
    return text.removeprefix(".").encode(errors="backslashreplace").decode()


def deeper_than(value: Any, limit: int) -> bool:
    """Whether lists and objects are nested more than ``limit`` levels deep."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(limit):
        level = [
            child
            for parent in level
            for child in (parent.values() if type(parent) is dict else parent)
            if type(child) is dict or type(child) is list
        ]
        if not level:
            return False
    return True


def _too_deep() -> StrictJsonError:
    return StrictJsonError(f"nested more than {MAX_JSON_DEPTH} levels deep", kind="json_too_deep")


def _not_finite(raw: bytes) -> StrictJsonError:
    """The refusal of NaN or an infinity, at the first place that has one."""
    for path, value in _places(json.loads(raw)):
        if isinstance(value, float) and not math.isfinite(value):
            return StrictJsonError("Input should be a finite number", kind="finite_number", path=path)
    # Another key of the same name came after it.
    return StrictJsonError("holds a number that is not finite", kind="finite_number")


def _places(root: Any) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every value inside with the path to it, in the order of the text."""
    pending: list[tuple[tuple[Any, ...], Any]] = [((), root)]
    while pending:
        path, value = pending.pop()
        yield path, value
        if isinstance(value, dict):
            pending.extend(((*path, key), child) for key, child in reversed(value.items()))
        elif isinstance(value, list):
            pending.extend(((*path, i), value[i]) for i in reversed(range(len(value))))


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class _NotFiniteError(ValueError):
    pass


def _refuse_constant(name: str) -> NoReturn:
    raise _NotFiniteError(name)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise _NotFiniteError(text)
    return value


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite)

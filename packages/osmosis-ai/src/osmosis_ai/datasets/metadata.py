"""Rules of the optional `metadata` column, checked over all rows of a file."""

from __future__ import annotations

import json
import math
from typing import Any

from osmosis_ai.datasets.exact_json import parse
from osmosis_ai.datasets.problems import Fault, shown

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
MAX_PATHS = 100_000
_NAMES = {str: "str", bool: "bool", int: "number", float: "number", dict: "dict", list: "list"}


class Node:
    """What is known of one JSON path: the name of its type (None: none seen yet), its keys, and the items of its lists."""

    __slots__ = ("items", "keys", "kind")

    def __init__(self) -> None:
        self.kind: str | None = None
        self.keys: dict[str, Node] = {}
        self.items: Node | None = None

    def to_json(self) -> list[Any]:
        """The node and all below it."""
        keys = {key: node.to_json() for key, node in self.keys.items()}
        return [self.kind, keys, self.items and self.items.to_json()]

    @classmethod
    def from_json(cls, data: list[Any]) -> Node:
        """The inverse of `to_json`."""
        node = cls()
        node.kind = data[0]
        node.keys = {key: cls.from_json(inner) for key, inner in data[1].items()}
        node.items = data[2] and cls.from_json(data[2])
        return node


class MetadataRules:
    """Remembers the type seen at each JSON path, so that types stay the same across rows.

    Of a file with more than 100,000 different paths the first ones are remembered (`forgetful` is True then): memory must not
    grow with the file.
    """

    def __init__(self) -> None:
        self.root = Node()
        self.paths = 0
        self.version = 0  # changes whenever something new is remembered
        self.objects = 0
        self.non_empty = 0

    @property
    def forgetful(self) -> bool:
        """Whether there were too many paths to remember all of them."""
        return self.paths >= MAX_PATHS

    def fault(self, value: Any) -> Fault | None:
        """What is wrong with one cell: JSON text (str) or an object. The caller leaves absent and blank cells out."""
        if type(value) is str:
            try:
                value = parse(value.encode("utf-8"))
            except (ValueError, RecursionError) as error:
                detail = str(error) or "nested too deeply"
                return Fault(f"not valid JSON ({detail})", "metadata", shown(value))
        if type(value) is not dict:
            return Fault(f"must be a JSON object, got {_name(value)}", "metadata", shown(value))
        self.objects += 1
        if not value:
            return None
        self.non_empty += 1
        try:
            return self._object(value, self.root, ())
        except RecursionError:
            return Fault("nested too deeply", "metadata")

    def _object(self, value: dict[str, Any], node: Node, path: tuple[str, ...]) -> Fault | None:
        known = node.keys
        for key, item in value.items():
            kind = type(item)
            below = known.get(key)
            if below is not None and kind is str and below.kind == "str":
                continue
            if below is None:
                below = Node()
                if self.paths < MAX_PATHS:
                    self.paths += 1
                    self.version += 1
                    known[key] = below
            fault = self._value(item, kind, below, (*path, "." + key))
            if fault is not None:
                return fault
        return None

    def _list(self, value: list[Any], node: Node, path: tuple[str, ...]) -> Fault | None:
        if node.items is None:
            node.items = Node()
        below, path = node.items, (*path, "[]")
        for item in value:
            fault = self._value(item, type(item), below, path)
            if fault is not None:
                return fault
        return None

    def _value(self, item: Any, kind: type, node: Node, path: tuple[str, ...]) -> Fault | None:
        if item is None:
            return None
        name = _NAMES.get(kind)
        if name is None:
            return _at(f"value at {_text(path)} cannot be written as JSON ({kind.__name__})", item)
        if node.kind is None:
            node.kind = name
            self.version += 1
        elif node.kind != name:
            kinds = f"{node.kind} vs {name}"
            return _at(f"value type at {_text(path)} is inconsistent across rows ({kinds})", item)
        if kind is dict:
            return self._object(item, node, path) if item else _at(f"empty nested object at {_text(path)}")
        if kind is list:
            return self._list(item, node, path)
        if kind is int and not INT64_MIN <= item <= INT64_MAX:
            return _at(f"integer at {_text(path)} is too large for 64 bits", item)
        if kind is float and not math.isfinite(item):
            return _at(f"number at {_text(path)} is not finite", item)
        return None

    def agrees_with(self, later: MetadataRules) -> bool:
        """Whether rows that were read without knowing of earlier rows would be judged the same after them."""
        return _agree(self.root, later.root)

    def absorb(self, later: MetadataRules) -> None:
        """Take over what later rows, which agree with these, have shown."""
        self.objects += later.objects
        self.non_empty += later.non_empty
        self.paths += _merge(self.root, later.root, MAX_PATHS - self.paths)


def metadata_text(value: Any) -> str | None:
    """A good cell as JSON text: text as it is in the file, an object written out, None for an absent or blank one.

    Raises:
        ValueError: a string inside is half of a surrogate pair, which is not a character.
    """
    if value is None or (type(value) is str and not value.strip()):
        return None
    if type(value) is str:
        return value
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _at(message: str, value: Any = None) -> Fault:
    return Fault(message, "metadata", None if value is None else shown(value))


def _text(path: tuple[str, ...]) -> str:
    return "$" + "".join(path)


def _name(value: Any) -> str:
    return _NAMES.get(type(value), type(value).__name__)


def _agree(earlier: Node, later: Node) -> bool:
    if earlier.kind and later.kind and earlier.kind != later.kind:
        return False
    if earlier.items and later.items and not _agree(earlier.items, later.items):
        return False
    return all(_agree(known, below) for key, below in later.keys.items() if (known := earlier.keys.get(key)))


def _merge(earlier: Node, later: Node, room: int) -> int:
    """Add what `later` knows; the number of paths added."""
    added = 0
    earlier.kind = earlier.kind or later.kind
    if later.items is not None:
        earlier.items = earlier.items or Node()
        added += _merge(earlier.items, later.items, room)
    for key, below in later.keys.items():
        known = earlier.keys.get(key)
        if known is None:
            if added >= room:
                continue
            known = earlier.keys[key] = Node()
            added += 1
        added += _merge(known, below, room - added)
    return added

"""Telling in one step that a row is good because it looks like good rows before it.

From what the metadata rules remember, a typed schema is made, which the parser checks while it parses. A row that fits and repeats
no key breaks no rule. A row that does not fit may still be good: the rules decide, and the schema learns.
"""

from __future__ import annotations

from typing import Any

from pydantic_core import SchemaValidator, ValidationError
from pydantic_core import core_schema as cs

from osmosis_ai.datasets.exact_json import colons_fit, count_keys
from osmosis_ai.datasets.metadata import Node
from osmosis_ai.datasets.row_rules import TEXT_COLUMNS, RowRules

MAX_PATHS = 256  # a schema checks every key it knows in every row
_WINDOW = 256
_PAUSE = 4096
_TEXT = cs.str_schema(strict=True)
_TRUTH = cs.bool_schema(strict=True)
# Open at both ends: whole numbers near the limits of 64 bits become these ends, and the rules decide.
_NUMBER = cs.float_schema(strict=True, gt=-(2.0**63), lt=2.0**63, allow_inf_nan=False)
_SCALARS = {"str": _TEXT, "bool": _TRUTH, "number": _NUMBER}
Branches = dict[str, Any]


class KnownRows:
    """`fits(raw)` is True only for rows that the rules would accept without learning anything."""

    def __init__(self, rules: RowRules) -> None:
        self._rules = rules
        self._validate: Any = None
        self._branches: Branches = {}
        self._others: dict[str, None] = {}
        self._kinds: dict[str, set[type]] = {name: set() for name in TEXT_COLUMNS}
        self._known = -1
        self._tries = self._misses = self._pause = 0

    def fits(self, raw: bytes) -> bool:
        """Whether the row is certainly good. If so, it counts as seen by the metadata rules."""
        if self._validate is None:
            return False
        if self._pause:
            self._pause -= 1
            return False
        self._tries += 1
        try:
            row = self._validate(raw)
        except ValidationError:
            self._miss()
            return False
        keys = len(row)
        metadata = row.get("metadata")
        if metadata:
            inside = _count(metadata, self._branches)
            if inside < 0:
                return False
            keys += inside
        if self._others:
            keys += sum(count_keys(row[name]) for name in self._others if name in row)
        if not colons_fit(raw, keys):
            return False
        if metadata is not None:
            self._rules.metadata.objects += 1
            self._rules.metadata.non_empty += bool(metadata)
        return True

    def learn(self, row: dict[str, Any]) -> None:
        """A row that did not fit is good all the same."""
        known = len(self._others) + sum(map(len, self._kinds.values()))
        for name, value in row.items():
            if name in self._kinds:
                self._kinds[name].add(str if value is None else type(value))
            elif name != "metadata" and len(self._others) < MAX_PATHS:
                self._others[name] = None
        after = len(self._others) + sum(map(len, self._kinds.values()))
        version = self._rules.metadata.version
        if self._validate is None or after != known or version != self._known:
            self._known = version
            self._build()

    def _miss(self) -> None:
        self._misses += 1
        if self._tries >= _WINDOW:
            if self._misses > self._tries // 4:  # rows differ too much: trying costs more than it saves
                self._pause = _PAUSE
            self._tries = self._misses = 0

    def _build(self) -> None:
        metadata = self._rules.metadata
        if metadata.paths + len(self._others) > MAX_PATHS or "user_prompt" not in self._rules.required:
            self._validate = None
            return
        fields: dict[str, cs.CoreSchema] = {name: cs.any_schema() for name in self._others}
        fields |= {name: _text_column(kinds) for name, kinds in self._kinds.items()}
        # A row without a prompt is for the rules.
        fields["user_prompt"] = cs.str_schema(strict=True, min_length=1)
        self._branches = {}
        inner = _object(metadata.root, self._branches)
        fields["metadata"] = cs.nullable_schema(inner)
        self._validate = SchemaValidator(_typed_dict(fields, self._rules.required)).validate_json


def _typed_dict(fields: dict[str, cs.CoreSchema], required: frozenset[str] = frozenset()) -> cs.CoreSchema:
    members = {
        name: cs.typed_dict_field(schema, required=name in required) for name, schema in fields.items()
    }
    return cs.typed_dict_schema(members, extra_behavior="forbid", strict=True)


def _text_column(kinds: set[type]) -> cs.CoreSchema:
    if kinds <= {str}:
        return cs.nullable_schema(_TEXT)
    return cs.nullable_schema(cs.union_schema([_TEXT, cs.float_schema(strict=True)], mode="left_to_right"))


def _object(node: Node, branches: Branches) -> cs.CoreSchema:
    """The schema of an object; `branches` gets the keys below which more keys are."""
    fields: dict[str, cs.CoreSchema] = {}
    for key, below in node.keys.items():
        inner: Branches = {}
        fields[key] = cs.nullable_schema(_value(below, inner))
        if inner or below.kind == "dict" or _holds_objects(below):
            branches[key] = inner
    return _typed_dict(fields)


def _value(node: Node, branches: Branches) -> cs.CoreSchema:
    if node.kind == "dict":
        return _object(node, branches)
    if node.kind == "list":
        items = node.items or Node()
        inner = _value(items, branches) if items.kind else cs.none_schema()
        return cs.list_schema(cs.nullable_schema(inner), strict=True)
    return _SCALARS[node.kind] if node.kind else cs.none_schema()


def _holds_objects(node: Node) -> bool:
    return node.items is not None and (node.items.kind == "dict" or _holds_objects(node.items))


def _count(value: Any, branches: Branches) -> int:
    """Number of keys of all objects inside; -1 when one of them is empty."""
    if type(value) is dict:
        count = len(value)
        if count == 0:
            return -1
        for key, inner in branches.items():
            item = value.get(key)
            if item is not None:
                below = _count(item, inner)
                if below < 0:
                    return -1
                count += below
        return count
    count = 0
    for item in value:
        if item is not None:
            below = _count(item, branches)
            if below < 0:
                return -1
            count += below
    return count

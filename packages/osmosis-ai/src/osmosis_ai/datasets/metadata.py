"""Rules of the optional `metadata` column, checked over all rows of a file."""

from __future__ import annotations

import json
import math
from typing import Any

from osmosis_ai.datasets.reading import parse_json

INT64 = range(-(2**63), 2**63)


class MetadataRules:
    """Remembers the type seen at each JSON path, so that types stay the same across rows."""

    def __init__(self) -> None:
        self._types: dict[str, str] = {}
        self.objects = 0
        self.non_empty = 0

    def check(self, value: Any) -> tuple[str | None, str | None]:
        """(JSON text or None, problem or None) for one cell. Absent, null and blank cells are None without problem."""
        if value is None or (isinstance(value, str) and not value.strip()):
            return None, None
        try:
            parsed = parse_json(value) if isinstance(value, str) else value
        except (ValueError, RecursionError) as error:
            return None, f"metadata is not valid JSON ({error})"
        if not isinstance(parsed, dict):
            return None, f"metadata must be a JSON object, got {_type_name(parsed)}"
        self.objects += 1
        self.non_empty += bool(parsed)
        try:
            problem = self._walk(parsed, "$", top=True)
            text = (
                value if isinstance(value, str) else json.dumps(parsed, ensure_ascii=False, allow_nan=False)
            )
        except (TypeError, ValueError, RecursionError) as error:
            return None, f"metadata cannot be written as JSON ({error})"
        return (None, problem) if problem else (text, None)

    def _walk(self, value: Any, path: str, *, top: bool = False) -> str | None:
        if isinstance(value, dict):
            if not value and not top:
                return f"metadata has an empty nested object at {path}"
            for key, item in value.items():
                problem = self._note(item, f"{path}.{key}") or self._walk(item, f"{path}.{key}")
                if problem:
                    return problem
        elif isinstance(value, list):
            for item in value:
                problem = self._note(item, f"{path}[]") or self._walk(item, f"{path}[]")
                if problem:
                    return problem
        elif isinstance(value, int) and not isinstance(value, bool) and value not in INT64:
            return f"metadata integer at {path} is too large for 64 bits"
        elif isinstance(value, float) and not math.isfinite(value):
            return f"metadata number at {path} is not finite"
        return None

    def _note(self, value: Any, path: str) -> str | None:
        if value is None:
            return None
        name = _type_name(value)
        known = self._types.setdefault(path, name)
        if known != name:
            return f"metadata value type at {path} is inconsistent across rows ({known} vs {name})"
        return None


def _type_name(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    return type(value).__name__

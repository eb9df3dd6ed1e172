"""Rules of one row, whatever file it comes from."""

from __future__ import annotations

from typing import Any

from osmosis_ai.datasets.metadata import MetadataRules
from osmosis_ai.datasets.problems import Fault, shown

TEXT_COLUMNS = ("system_prompt", "user_prompt", "ground_truth", "label")
REQUIRED_COLUMNS = frozenset({"system_prompt", "user_prompt"})
_KINDS = {dict: "object", list: "list", bool: "boolean"}
_GOOD = (str, int, float)


class RowRules:
    """Checks rows one by one. `required` are the columns that every row must have."""

    def __init__(self, required: frozenset[str]) -> None:
        self.required = required
        self.metadata = MetadataRules()

    def fault(self, cells: dict[str, Any]) -> Fault | None:
        """The first thing wrong with a row, or None. Numbers in text columns count as text."""
        get = cells.get
        for name in TEXT_COLUMNS:
            value = get(name)
            if value is not None and type(value) is not str and type(value) not in _GOOD:
                kind = _KINDS.get(type(value), type(value).__name__)
                return Fault(f"expected text, got {kind}", name, shown(value))
        if not self.required <= cells.keys():
            missing = ", ".join(sorted(self.required - cells.keys()))
            return Fault(f"missing {missing}")
        metadata = get("metadata")
        if metadata is not None and not (type(metadata) is str and not metadata.strip()):
            return self.metadata.fault(metadata)
        if get("user_prompt") in (None, "") and get("system_prompt") in (None, ""):
            return Fault("the row has neither a prompt nor metadata")
        return None

"""What is wrong with a dataset file, and where."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

MAX_PROBLEMS = 5
SHOWN_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem. Without `number` it is about the whole file.

    `unit` is `Line` (JSONL) or `Row` (CSV, where the header is row 1; Parquet, from 1) and `number` counts it; `line` is the
    physical line of a CSV row; `value` is what was found, shortened. `fatal` ends the reading of the file.
    """

    message: str
    unit: str = "Row"
    number: int | None = None
    column: str | None = None
    line: int | None = None
    value: str | None = None
    fatal: bool = False

    def moved(self, lines: int) -> Problem:
        """The same problem, `lines` further down."""
        return self if self.number is None else replace(self, number=self.number + lines)

    @property
    def text(self) -> str:
        """The problem as one line, for example `Line 3, column user_prompt: expected text, got list: ["u"]`."""
        if self.number is None:
            return self.message
        column = f", column {self.column}" if self.column else ""
        value = f": {self.value}" if self.value is not None else ""
        line = f" (line {self.line})" if self.line is not None and self.line != self.number else ""
        return f"{self.unit} {self.number}{column}: {self.message}{value}{line}"

    def to_dict(self) -> dict[str, Any]:
        """The problem for programs: only the facts that are known."""
        facts = {
            self.unit.lower(): self.number,
            "line": self.line,
            "column": self.column,
            "value": self.value,
            "message": self.message,
        }
        if self.unit == "Line":
            facts["line"] = self.number
        return {name: fact for name, fact in facts.items() if fact is not None}


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a row; its reader knows the place."""

    message: str
    column: str | None = None
    value: str | None = None


class Problems:
    """Counts all problems and keeps the first five."""

    def __init__(self) -> None:
        self.kept: list[Problem] = []
        self.count = 0

    def add(self, problem: Problem) -> None:
        """One more."""
        self.count += 1
        if len(self.kept) < MAX_PROBLEMS:
            self.kept.append(problem)


def shown(value: Any) -> str:
    """A value as quoted in messages: as JSON, cut after 60 characters."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=repr)
    except (ValueError, RecursionError):
        text = repr(type(value))
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "…"

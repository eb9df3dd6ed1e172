"""What reading a dataset file, or a part of one, has found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from osmosis_ai.datasets.problems import Fault, Problem, Problems, shown
from osmosis_ai.datasets.row_rules import REQUIRED_COLUMNS, RowRules

MAX_ROW_BYTES = 16 * 1024 * 1024
_SHOWN_COLUMNS = 8
ColumnRule = Literal["documented", "any"]
CellSink = Callable[[dict[str, Any]], None]
Progress = Callable[[int], None]


def _listed(columns: list[str]) -> str:
    """Column names as quoted in messages: the first of them, each cut."""
    return ", ".join(shown(name) for name in columns[:_SHOWN_COLUMNS]) + (
        f" and {len(columns) - _SHOWN_COLUMNS} more" if len(columns) > _SHOWN_COLUMNS else ""
    )


class Scan:
    """Rows (good and bad ones), problems, and what the rules remember.

    `columns` is None until something has told them. `lines` counts the lines of a JSONL part. `broken` says that reading ended
    early, so that the number of rows is not known.
    """

    def __init__(self, column_rule: ColumnRule = "documented", *, columns: list[str] | None = None) -> None:
        self.column_rule = column_rule
        self.columns = columns
        self.rules = RowRules(REQUIRED_COLUMNS)
        self.rows = 0
        self.lines = 0
        self.broken = False
        self.problems = Problems()

    def fail(self, problem: Problem) -> None:
        """Note a problem; a fatal one ends the reading."""
        self.problems.add(problem)
        self.broken = self.broken or problem.fatal

    def fail_row(self, fault: Fault, unit: str, number: int, line: int | None = None) -> None:
        """Note what is wrong with a row."""
        self.fail(Problem(fault.message, unit, number, fault.column, line, fault.value))

    def learn_columns(self, columns: list[str]) -> bool:
        """Take the columns of the file; False, and a problem, when required ones are missing."""
        self.columns = columns
        names = set(columns)
        if names >= REQUIRED_COLUMNS:
            return True
        if self.column_rule == "any" and (
            "metadata" in names or ("user_prompt" in names and names & {"ground_truth", "label"})
        ):
            self.rules.required = REQUIRED_COLUMNS & names
            return True
        missing = ", ".join(sorted(REQUIRED_COLUMNS - names))
        required = ", ".join(sorted(REQUIRED_COLUMNS))
        message = f"Missing required columns: {missing}. Required: {required}. Found: {_listed(columns)}"
        self.fail(Problem(message, fatal=True))
        return False

    def agrees_with(self, later: Scan) -> bool:
        """Whether a later part, read without knowing of this one, would have been judged the same after it."""
        return self.columns is not None and self.rules.metadata.agrees_with(later.rules.metadata)

    def absorb(self, later: Scan) -> None:
        """Append a later part of the same file that agrees with this one."""
        for problem in later.problems.kept:
            self.problems.add(problem.moved(self.lines))
        self.problems.count += later.problems.count - len(later.problems.kept)
        self.rules.metadata.absorb(later.rules.metadata)
        self.rows += later.rows
        self.lines += later.lines

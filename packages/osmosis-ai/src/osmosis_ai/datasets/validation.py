"""The one dataset validator: every rule on every row, in one streaming pass."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from osmosis_ai.datasets.metadata import MetadataRules
from osmosis_ai.datasets.reading import Problem, Record, read_columns, read_records

EXTENSIONS = ("csv", "jsonl", "parquet")
MAX_FILE_BYTES = 5 * 1024**3
MIN_ROWS = 4
MAX_ERRORS = 5

ColumnRule = Literal["documented", "any"]
RowSink = Callable[[int, dict[str, str | None]], None]


@dataclass(slots=True)
class ValidationReport:
    """What was found. The file is valid when `errors` is empty; `row_count` is None when reading broke off."""

    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    row_count: int | None = None
    columns: list[str] = field(default_factory=list)

    @property
    def valid(self) -> bool:
        """Whether nothing is wrong."""
        return not self.errors


def file_extension(path: Path) -> str:
    """`csv`, `jsonl` or `parquet`, or whatever else the name ends in (lower case, without dot)."""
    return path.suffix.lower().removeprefix(".")


def validate_file(
    path: str | Path,
    *,
    columns: ColumnRule = "documented",
    extension: str | None = None,
    sink: RowSink | None = None,
) -> ValidationReport:
    """Check a dataset file and, with `sink`, hand over each good row's cells.

    `columns` = `documented` requires `system_prompt` and `user_prompt`; `any` also takes `user_prompt` with `ground_truth` (or
    `label`), and any file with a `metadata` column. `sink(row_index, cells)` gets `system_prompt`, `user_prompt`, `ground_truth` and
    `metadata` (JSON text), each text or None. At most five errors are kept. Memory does not grow with the file.
    """
    path = Path(path)
    report = ValidationReport()
    kind = extension or file_extension(path)
    if kind not in EXTENSIONS:
        report.errors.append(f"Unsupported file type '.{kind}'. Supported: {', '.join(EXTENSIONS)}")
        return report
    size = path.stat().st_size
    if size == 0:
        report.errors.append("File is empty.")
        return report
    if size > MAX_FILE_BYTES:
        report.errors.append(f"File is too large ({size} bytes); the limit is 5 GB ({MAX_FILE_BYTES} bytes).")
        return report
    if kind == "parquet" and importlib.util.find_spec("pyarrow") is None:
        report.warnings.append(
            'pyarrow not installed, content not checked: pip install "osmosis-ai[parquet]"'
        )
        return report
    found = read_columns(path, kind)
    if isinstance(found, Problem):
        report.errors.append(found.message)
        return report
    report.columns = found
    if problem := _column_problem(found, columns):
        report.errors.append(problem)
        return report
    _check_rows(path, kind, report, sink)
    return report


def _column_problem(found: list[str], rule: ColumnRule) -> str | None:
    names = set(found)
    documented = {"system_prompt", "user_prompt"}
    if documented <= names:
        return None
    if rule == "any" and (
        "metadata" in names or ("user_prompt" in names and names & {"ground_truth", "label"})
    ):
        return None
    missing = sorted(documented - names)
    return f"Missing required columns: {', '.join(missing)}. Required: system_prompt, user_prompt"


def _check_rows(path: Path, kind: str, report: ValidationReport, sink: RowSink | None) -> None:
    rules = MetadataRules()
    rows = problems = 0
    required = {"system_prompt", "user_prompt"} & set(report.columns)
    for item in read_records(path, kind):
        problem = item if isinstance(item, Problem) else None
        if isinstance(item, Record):
            text, metadata_problem = rules.check(item.cells.get("metadata"))
            message = metadata_problem or _row_problem(item.cells, required, text)
            if message is None:
                if sink is not None:
                    sink(rows, _cells(item.cells, text))
                rows += 1
            else:
                problem = Problem(f"{item.place}: {message}")
        if problem is not None:
            problems += 1
            if problems <= MAX_ERRORS:
                report.errors.append(problem.message)
            if problem.fatal:
                return
    report.row_count = rows + problems
    if problems > MAX_ERRORS:
        report.errors.append(f"... (showing first {MAX_ERRORS} errors of {problems})")
    if report.row_count == 0:
        report.errors.append("Parquet file has no rows" if kind == "parquet" else "File has no rows.")
    elif report.row_count < MIN_ROWS:
        report.errors.append(
            f"Dataset too small: {report.row_count} rows. At least {MIN_ROWS} rows are needed."
        )
    if rules.objects and not rules.non_empty:
        report.errors.append("all metadata objects are empty")


def _row_problem(cells: dict[str, Any], required: set[str], metadata: str | None) -> str | None:
    missing = sorted(name for name in required if name not in cells)
    if missing:
        return f"missing {', '.join(missing)}"
    if (
        cells.get("user_prompt") in (None, "")
        and cells.get("system_prompt") in (None, "")
        and metadata is None
    ):
        return "the row has neither a prompt nor metadata"
    return None


def _cells(cells: dict[str, Any], metadata: str | None) -> dict[str, str | None]:
    truth = cells.get("ground_truth")
    if truth is None:
        truth = cells.get("label")
    return {
        "system_prompt": _plain(cells.get("system_prompt")),
        "user_prompt": _plain(cells.get("user_prompt")),
        "ground_truth": _plain(truth),
        "metadata": metadata,
    }


def _plain(value: Any) -> str | None:
    return None if value is None else str(value)

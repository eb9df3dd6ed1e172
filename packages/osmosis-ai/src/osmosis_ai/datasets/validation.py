"""The one dataset validator: every rule on every row, in one streaming pass."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from osmosis_ai.datasets.metadata import MAX_PATHS, metadata_text
from osmosis_ai.datasets.problems import MAX_PROBLEMS, Problem
from osmosis_ai.datasets.scan import CellSink, ColumnRule, Progress, Scan
from osmosis_ai.datasets.signatures import mistaken_for_text

EXTENSIONS = ("csv", "jsonl", "parquet")
MAX_FILE_BYTES = 5 * 1024**3
MIN_ROWS = 4
PARALLEL_FROM_BYTES = 48 * 1024 * 1024

RowSink = Callable[[int, dict[str, str | None]], None]


@dataclass(slots=True)
class ValidationReport:
    """What was found. The file is valid when `errors` is empty; `row_count` is None when reading broke off.

    `errors` are sentences with the place and the value; `problems` are the same facts about single rows, for programs.
    """

    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    row_count: int | None = None
    columns: list[str] = field(default_factory=list)
    problems: list[dict[str, Any]] = field(default_factory=list)

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
    progress: Progress | None = None,
    processes: int | None = None,
) -> ValidationReport:
    """Check a dataset file and, with `sink`, hand over each good row's cells.

    `columns` = `documented` requires `system_prompt` and `user_prompt`; `any` also takes `user_prompt` with `ground_truth` (or
    `label`), and any file with a `metadata` column. `sink(row_index, cells)` gets `system_prompt`, `user_prompt`, `ground_truth` and
    `metadata` (JSON text), each text or None. At most five errors are kept. `progress` hears how many bytes are done. Memory does
    not grow with the file. Large JSONL files are read by `processes` (default: one per core), when no `sink` needs the rows in
    order.
    """
    path = Path(path)
    report = ValidationReport()
    kind = extension or file_extension(path)
    problem = _file_problem(path, kind)
    if problem is not None:
        report.errors.append(problem)
        return report
    if kind == "parquet" and importlib.util.find_spec("pyarrow") is None:
        report.warnings.append(
            'pyarrow not installed, content not checked: pip install "osmosis-ai[parquet]"'
        )
        return report
    scan = Scan(columns)
    _read(path, kind, scan, _cell_sink(sink), progress, processes)
    _conclude(scan, kind, report)
    if report.errors and kind != "parquet" and (mistake := mistaken_for_text(path)) is not None:
        _add(report, f"Perhaps {mistake}.")
    return report


def _file_problem(path: Path, kind: str) -> str | None:
    if kind not in EXTENSIONS:
        return f"Unsupported file type '.{kind}'. Supported: {', '.join(EXTENSIONS)}"
    size = path.stat().st_size
    if size == 0:
        return "File is empty."
    if size > MAX_FILE_BYTES:
        return f"File is too large ({size} bytes); the limit is 5 GB ({MAX_FILE_BYTES} bytes)."
    return None


def _read(
    path: Path, kind: str, scan: Scan, sink: CellSink | None, progress: Progress | None, processes: int | None
) -> None:
    if kind == "csv":
        from osmosis_ai.datasets.reading_csv import scan_csv

        scan_csv(path, scan, sink=sink, progress=progress)
    elif kind == "parquet":
        from osmosis_ai.datasets.reading_parquet import scan_parquet

        scan_parquet(path, scan, sink=sink, progress=progress)
    elif sink is None and scan.column_rule == "documented" and path.stat().st_size >= PARALLEL_FROM_BYTES:
        from osmosis_ai.datasets.parts import scan_in_parts

        scan_in_parts(path, scan, processes=processes, progress=progress)
    else:
        from osmosis_ai.datasets.reading_jsonl import scan_jsonl

        scan_jsonl(path, scan, sink=sink, progress=progress)


def _conclude(scan: Scan, kind: str, report: ValidationReport) -> None:
    """Turn what was found into the report, with the rules about the file as a whole."""
    problems, metadata = scan.problems, scan.rules.metadata
    report.columns = scan.columns or []
    report.errors = [problem.text for problem in problems.kept]
    report.problems = [problem.to_dict() for problem in problems.kept]
    if problems.count > MAX_PROBLEMS:
        report.errors.append(f"... (showing first {MAX_PROBLEMS} errors); there are {problems.count}")
    if scan.broken:
        return
    report.row_count = scan.rows
    if scan.rows == 0 and kind == "parquet":
        _add(report, "Parquet file has no rows")
    elif scan.rows < MIN_ROWS:
        _add(report, f"Dataset too small: {scan.rows} rows. At least {MIN_ROWS} rows are needed.")
    if metadata.objects and not metadata.non_empty:
        _add(report, "Invalid metadata column: all sampled metadata objects are empty (every row was read)")
    if metadata.forgetful:
        report.warnings.append(
            f"metadata has more than {MAX_PATHS} different keys; the types of further ones were not compared across rows"
        )


def _add(report: ValidationReport, message: str) -> None:
    report.errors.append(message)
    report.problems.append(Problem(message).to_dict())


def _cell_sink(sink: RowSink | None) -> CellSink | None:
    """A sink for cells as they were read, which counts the rows and writes every cell as text."""
    if sink is None:
        return None
    index = 0

    def add(cells: dict[str, Any]) -> None:
        nonlocal index
        truth = cells.get("ground_truth")
        sink(
            index,
            {
                "system_prompt": cells.get("system_prompt"),
                "user_prompt": cells.get("user_prompt"),
                "ground_truth": truth if truth is not None else cells.get("label"),
                "metadata": metadata_text(cells.get("metadata")),
            },
        )
        index += 1

    return add

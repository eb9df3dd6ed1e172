"""Reading CSV: a header, then rows of text exactly as it stands in the file."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path

from osmosis_ai.datasets.problems import Problem
from osmosis_ai.datasets.reading_jsonl import BOM
from osmosis_ai.datasets.scan import MAX_ROW_BYTES, CellSink, Progress, Scan

_OLD_LINE_END = re.compile(r"(?<=\r)(?!\n)")
_EVERY_LINES = 10_000


class _Stop(Exception):
    """The text cannot be read on; holds the problem."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


class _Lines:
    """The lines of a file as text, each checked for its encoding and all lines of one row together for their size."""

    def __init__(self, path: Path, progress: Progress | None) -> None:
        self._path, self._progress = path, progress
        self.number = 0
        self.row_bytes = 0
        self.row_line = 1
        self.ended = False

    def __iter__(self) -> Iterator[str]:
        with self._path.open("rb", buffering=1024 * 1024) as file:
            while raw := file.readline(MAX_ROW_BYTES + 1):
                self.number += 1
                self.row_bytes += len(raw)
                if self.row_bytes > MAX_ROW_BYTES:
                    message = f"a row may have at most {MAX_ROW_BYTES} bytes (line {self.number}); is a quote left open?"
                    raise _Stop(Problem(f"CSV parse error: {message}", fatal=True))
                if self.number == 1:
                    raw = raw.removeprefix(BOM)
                if self._progress is not None and self.number % _EVERY_LINES == 0:
                    self._progress(file.tell())
                text = self._decode(raw)
                if "\r" in text and "\r" in text.removesuffix("\r\n"):
                    yield from _OLD_LINE_END.split(text)
                else:
                    yield text
        self.ended = True

    def _decode(self, raw: bytes) -> str:
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            near = raw[max(0, error.start - 15) : error.start + 15].decode("utf-8", "backslashreplace")
            message = f"line {self.number}, byte {error.start + 1}: not UTF-8 ({error.reason}), near {near!r}"
            raise _Stop(Problem(f"File encoding error: {message}", fatal=True)) from None


def scan_csv(
    path: Path, scan: Scan, *, sink: CellSink | None = None, progress: Progress | None = None
) -> None:
    """Check all rows. The header is row 1; `sink` gets the cells of good rows."""
    csv.field_size_limit(MAX_ROW_BYTES)
    lines = _Lines(path, progress)
    reader = csv.reader(lines, strict=True)
    try:
        header = next(reader, [])
        if not any(name.strip() for name in header):
            scan.fail(Problem("File has no header row", fatal=True))
            return
        if len(set(header)) != len(header):
            repeated = ", ".join(sorted({name for name in header if header.count(name) > 1}))
            scan.fail(Problem(f"Duplicate column names in the header: {repeated}", fatal=True))
            return
        if scan.learn_columns(header):
            _check_rows(reader, lines, header, scan, sink)
    except csv.Error as error:
        hint = (
            f"; the quote opened in the row at line {lines.row_line} is never closed" if lines.ended else ""
        )
        scan.fail(Problem(f"CSV parse error near line {reader.line_num}: {error}{hint}", fatal=True))
    except _Stop as stop:
        scan.fail(stop.problem)


def _check_rows(
    reader: Iterator[list[str]], lines: _Lines, header: list[str], scan: Scan, sink: CellSink | None
) -> None:
    row_number, width, fault_of = 1, len(header), scan.rules.fault
    lines.row_bytes, lines.row_line = 0, lines.number + 1
    for row in reader:
        row_number += 1
        line, lines.row_line = lines.row_line, lines.number + 1
        lines.row_bytes = 0
        if not row:
            continue
        scan.rows += 1
        if len(row) != width:
            message = f"expected {width} columns, got {len(row)}"
            scan.fail(Problem(message, "Row", row_number, line=line))
            continue
        cells = dict(zip(header, row, strict=True))
        fault = fault_of(cells)
        if fault is not None:
            scan.fail_row(fault, "Row", row_number, line)
        elif sink is not None:
            sink(cells)

"""Reading JSONL: one object per line, from any part of the file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from osmosis_ai.datasets.exact_json import parse, parse_by_the_book
from osmosis_ai.datasets.known_rows import KnownRows
from osmosis_ai.datasets.problems import Problem, shown
from osmosis_ai.datasets.row_rules import TEXT_COLUMNS
from osmosis_ai.datasets.scan import MAX_ROW_BYTES, CellSink, Progress, Scan

BOM = b"\xef\xbb\xbf"
BLOCK = 1024 * 1024
_TOO_LONG = f"a row may have at most {MAX_ROW_BYTES} bytes; the file must hold one JSON object per line"
_KINDS = {list: "list", str: "text", bool: "boolean", int: "number", float: "number", type(None): "null"}


def scan_jsonl(
    path: Path,
    scan: Scan,
    *,
    start: int = 0,
    end: int | None = None,
    sink: CellSink | None = None,
    progress: Progress | None = None,
) -> None:
    """Check the lines that begin in bytes `start` to `end` of the file; `sink` gets the cells of good rows.

    Line numbers go on from `scan.lines`; `progress` hears the position in the file.
    """
    line = scan.lines
    known = KnownRows(scan.rules)
    fits: Callable[[bytes], bool] = known.fits if sink is None else lambda _: False  # it does not keep digits
    with path.open("rb", buffering=0) as file:
        for lines, position in _blocks(file, start, path.stat().st_size if end is None else end):
            for raw in lines:
                line += 1
                if raw is not None and fits(raw):
                    scan.rows += 1
                    continue
                if raw is None:
                    scan.rows += 1
                    scan.fail(Problem(_TOO_LONG, "Line", line))
                    continue
                if line == 1 and start == 0:
                    raw = raw.removeprefix(BOM)
                if raw and not raw.isspace():
                    _check_line(raw, line, scan, known, sink)
                    if scan.broken:
                        return
            scan.lines = line
            if progress is not None:
                progress(position)


def _check_line(raw: bytes, line: int, scan: Scan, known: KnownRows, sink: CellSink | None) -> None:
    scan.rows += 1
    try:
        row = parse(raw)
    except (ValueError, RecursionError) as error:
        detail = str(error) if isinstance(error, ValueError) else "nested too deeply"
        scan.fail(Problem(f"invalid JSON ({detail})", "Line", line))
        return
    if type(row) is not dict:
        message = f"expected a JSON object, got {_KINDS[type(row)]}"
        scan.fail(Problem(message, "Line", line, value=shown(row)))
        return
    if scan.columns is None and not scan.learn_columns(list(row)):
        return
    fault = scan.rules.fault(row)
    if fault is not None:
        scan.fail_row(fault, "Line", line)
    elif sink is not None:
        sink(_with_digits(row, raw))
    else:
        known.learn(row)


def _with_digits(row: dict[str, Any], raw: bytes) -> dict[str, Any]:
    """The row with the numbers of its text columns as they are written in the file."""
    numbers = [name for name in TEXT_COLUMNS if isinstance(row.get(name), int | float)]
    if not numbers:
        return row
    if all(type(row[name]) is int and row[name] != 0 for name in numbers):
        return row | {name: str(row[name]) for name in numbers}  # whole numbers have one spelling, except -0
    written = parse_by_the_book(raw, digits=True)
    return row | {name: str(written[name]) for name in numbers}


def _blocks(file: BinaryIO, start: int, end: int) -> Iterator[tuple[list[bytes | None], int]]:
    """Lines that begin in `start` to `end`, block by block, with the position reached.

    None stands for a line that is too long. Of a line that began before `start`, nothing is kept.
    """
    position = max(start - 1, 0)
    file.seek(position)
    rest, skipping = b"", start > 0
    while block := file.read(BLOCK):
        begin = position - len(rest)  # of the first line in `pieces`
        position += len(block)
        pieces = block.split(b"\n")
        if skipping:
            skipping = len(pieces) == 1
            begin += len(pieces.pop(0)) + 1
            if skipping:
                if position >= end:
                    return
                continue
        else:
            pieces[0] = rest + pieces[0]
        rest = pieces.pop()
        lines: list[bytes | None] = [*pieces]
        if position >= end:
            lines = []
            for piece in pieces:
                if begin >= end:
                    break
                lines.append(piece)
                begin += len(piece) + 1
        if pieces and lines and len(pieces[0]) > MAX_ROW_BYTES:
            lines[0] = None
        if position >= end and begin >= end:
            yield lines, position
            return
        if len(rest) > MAX_ROW_BYTES:
            lines.append(None)
            rest, skipping = b"", True
        yield lines, position
    if rest:
        yield [rest], position

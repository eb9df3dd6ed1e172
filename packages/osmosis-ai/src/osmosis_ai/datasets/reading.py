"""Strict reading of JSONL, CSV and Parquet: every cell as it is in the file, or a problem with its place.

Nothing is inferred: `007` stays `007`, `NA` stays `NA`, numbers in a JSONL text column keep their digits.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TEXT_COLUMNS = ("system_prompt", "user_prompt", "ground_truth", "label")


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong at a place. `fatal` ends the reading of the file."""

    message: str
    fatal: bool = False


@dataclass(frozen=True, slots=True)
class Record:
    """One row: the known columns as text or None, `metadata` as text or object, and where it stands in the file."""

    place: str
    cells: dict[str, Any]


class _Literal(str):
    """A JSON number kept as its digits."""

    __slots__ = ()


def _reject_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"duplicate key {key!r}")
            seen.add(key)
    return result


def parse_json(text: str) -> Any:
    """Strict JSON: no NaN or Infinity, no duplicate keys, no numbers that overflow. Raises ValueError."""
    return json.loads(text, parse_constant=_reject_constant, object_pairs_hook=_pairs)


def read_columns(path: Path, extension: str) -> list[str] | Problem:
    """The column names: header (CSV), schema (Parquet), or the keys of the first row (JSONL)."""
    try:
        if extension == "parquet":
            return _parquet_columns(path)
        if extension == "csv":
            with path.open(encoding="utf-8-sig", newline="") as file:
                _allow_long_fields()
                header = next(csv.reader(file, strict=True), None)
            if not header or all(not name.strip() for name in header):
                return Problem("File has no header row", fatal=True)
            if len(set(header)) != len(header):
                repeated = sorted({name for name in header if header.count(name) > 1})
                return Problem(f"Duplicate column names in the header: {', '.join(repeated)}", fatal=True)
            return header
        for record in read_records(path, extension):
            return list(record.cells) if isinstance(record, Record) else record
        return []
    except UnicodeDecodeError as error:
        return Problem(f"File encoding error: not UTF-8 at byte {error.start} ({error.reason})", fatal=True)
    except csv.Error as error:
        return Problem(f"CSV parse error in the header: {error}", fatal=True)


def read_records(path: Path, extension: str) -> Iterator[Record | Problem]:
    """All rows in file order, streaming; problems in between."""
    if extension == "jsonl":
        yield from _read_jsonl(path)
    elif extension == "csv":
        yield from _read_csv(path)
    else:
        yield from _read_parquet(path)


def _read_jsonl(path: Path) -> Iterator[Record | Problem]:
    with path.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            line = raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw
            if not line.strip():
                continue
            place = f"Line {number}"
            try:
                text = line.decode("utf-8")
                row = json.loads(
                    text,
                    parse_constant=_reject_constant,
                    object_pairs_hook=_pairs,
                    parse_int=_Literal,
                    parse_float=_Literal,
                )
                if isinstance(row, dict) and isinstance(row.get("metadata"), dict):
                    row["metadata"] = parse_json(text)["metadata"]
            except UnicodeDecodeError as error:
                yield Problem(f"{place}: invalid UTF-8 at byte {error.start} of the line")
                continue
            except (ValueError, RecursionError) as error:
                detail = (
                    error.msg
                    if isinstance(error, json.JSONDecodeError)
                    else str(error) or "nested too deeply"
                )
                column = f", column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
                yield Problem(f"{place}{column}: invalid JSON ({detail})")
                continue
            if not isinstance(row, dict):
                yield Problem(f"{place}: expected a JSON object, got {_kind(row)}")
                continue
            problem = next(
                (p for p in (_text_problem(place, name, row.get(name)) for name in TEXT_COLUMNS) if p), None
            )
            if problem:
                yield problem
                continue
            yield Record(place, row)


def _text_problem(place: str, name: str, value: Any) -> Problem | None:
    if value is None or isinstance(value, str):
        try:
            if value is not None:
                value.encode("utf-8")
        except UnicodeEncodeError:
            return Problem(
                f"{place}, column {name}: the text holds half of a surrogate pair, which is not a character"
            )
        return None
    return Problem(f"{place}, column {name}: expected text, got {_kind(value)}")


def _kind(value: Any) -> str:
    names = {
        dict: "object",
        list: "list",
        str: "text",
        bool: "boolean",
        type(None): "null",
        _Literal: "number",
    }
    return names.get(type(value), type(value).__name__)


def _allow_long_fields() -> None:
    csv.field_size_limit(sys.maxsize)


def _read_csv(path: Path) -> Iterator[Record | Problem]:
    _allow_long_fields()
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            header = next(reader, None)
            if not header:
                yield Problem("File has no header row", fatal=True)
                return
            number = 1
            for row in reader:
                number += 1
                if not row:
                    continue
                if len(row) != len(header):
                    yield Problem(
                        f"Row {number} (line {reader.line_num}): expected {len(header)} columns, got {len(row)}"
                    )
                    continue
                yield Record(f"Row {number}", dict(zip(header, row, strict=True)))
    except csv.Error as error:
        yield Problem(f"CSV parse error near line {reader.line_num}: {error}", fatal=True)
    except UnicodeDecodeError as error:
        yield Problem(
            f"File encoding error: not UTF-8 ({error.reason}, byte {error.start} of a block)", fatal=True
        )


def _parquet_columns(path: Path) -> list[str] | Problem:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(path)
    except (pa.ArrowInvalid, OSError) as error:
        return Problem(f"Invalid parquet file: {error}", fatal=True)
    if not schema.names:
        return Problem("Parquet file has no columns", fatal=True)
    for name in TEXT_COLUMNS:
        if name in schema.names and not _is_text(schema.field(name).type):
            return Problem(f"Column {name}: expected strings, got {schema.field(name).type}", fatal=True)
    if "metadata" in schema.names:
        kind = schema.field("metadata").type
        if not (pa.types.is_struct(kind) or _is_text(kind) or pa.types.is_map(kind)):
            return Problem("Invalid metadata column: must be a struct or JSON-object string", fatal=True)
    return list(schema.names)


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_null(kind)
        or pa.types.is_integer(kind)
        or (hasattr(pa.types, "is_string_view") and pa.types.is_string_view(kind))
    )


def _read_parquet(path: Path) -> Iterator[Record | Problem]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            names = [n for n in (*TEXT_COLUMNS, "metadata") if n in file.schema_arrow.names]
            number = 0
            for batch in file.iter_batches(batch_size=2048, columns=names):
                for row in batch.to_pylist():
                    cells = {
                        k: str(v) if isinstance(v, int) and k != "metadata" else v for k, v in row.items()
                    }
                    yield Record(f"Row {number}", cells)
                    number += 1
    except (pa.ArrowInvalid, OSError) as error:
        yield Problem(f"Invalid parquet file: {error}", fatal=True)

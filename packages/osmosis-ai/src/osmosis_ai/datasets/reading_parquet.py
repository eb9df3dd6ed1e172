"""Reading Parquet: text columns and metadata, batch by batch, without any conversion of values."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from osmosis_ai.datasets.large_pages import Chunk, PageError, can_stream, cells, chunk_pages, read_chunks
from osmosis_ai.datasets.problems import Fault, Problem
from osmosis_ai.datasets.row_rules import TEXT_COLUMNS
from osmosis_ai.datasets.scan import CellSink, Progress, Scan

BATCH_BYTES = 4 * 1024 * 1024
BATCH_ROWS = 2048
READ_BUFFER = 1024 * 1024
ALL_READ_BUFFERS = 16 * 1024 * 1024
# pyarrow holds up to three pages of a column at once: larger ones are read by `large_pages`, or refused.
LARGE_PAGE = 4 * 1024 * 1024
LARGEST_PAGES = 48 * 1024 * 1024
LARGE_PAGES_MEMORY = 112 * 1024 * 1024

type _Row = dict[str, Any] | Fault


def scan_parquet(
    path: Path, scan: Scan, *, sink: CellSink | None = None, progress: Progress | None = None
) -> None:
    """Check all rows, which are numbered from 1; `sink` gets the cells of good rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        about = pq.read_metadata(path)
        # Without these settings a whole row group, which may be the whole file, is read at once.
        with (
            path.open("rb") as raw,
            pq.ParquetFile(path, metadata=about, pre_buffer=False, buffer_size=_buffer(about.schema)) as file,
        ):
            problem = _schema_problem(file.schema_arrow)
            if problem is not None:
                scan.fail(problem)
                return
            if scan.learn_columns(list(file.schema_arrow.names)):
                _check_rows(file, raw, scan, sink, progress)
    except (pa.ArrowException, OSError, PageError) as error:
        reason = " ".join(str(error).split())  # some of Arrow's texts end with a newline
        scan.fail(Problem(f"Invalid parquet file: {reason}", fatal=True))
    except UnicodeDecodeError:  # cells are read with care, names are not
        scan.fail(Problem("Invalid parquet file: a column has a name that is not UTF-8", fatal=True))


def _buffer(schema: Any) -> int:
    """How much to read at once of each column: less where a metadata struct has many."""
    count: int = sum(column.path.startswith("metadata.") for column in schema) + len(TEXT_COLUMNS)
    return max(min(READ_BUFFER, ALL_READ_BUFFERS // count), 16 * 1024)


def _schema_problem(schema: Any) -> Problem | None:
    import pyarrow as pa

    if not schema.names:
        return Problem("Parquet file has no columns", fatal=True)
    if len(set(schema.names)) != len(schema.names):
        repeated = ", ".join(sorted({name for name in schema.names if schema.names.count(name) > 1}))
        return Problem(f"Duplicate column names: {repeated}", fatal=True)
    for name in TEXT_COLUMNS:
        if name in schema.names and not _is_text(schema.field(name).type):
            return Problem(f"Column {name}: expected strings, got {schema.field(name).type}", fatal=True)
    if "metadata" in schema.names:
        kind = schema.field("metadata").type
        if not (
            pa.types.is_struct(kind)
            or pa.types.is_map(kind)
            or (_is_text(kind) and not pa.types.is_integer(kind))
        ):
            message = f"Invalid metadata column: must be a struct or JSON-object string, got {kind}"
            return Problem(message, fatal=True)
    return None


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


def _check_rows(
    file: Any, raw: BinaryIO, scan: Scan, sink: CellSink | None, progress: Progress | None
) -> None:
    names = [name for name in (*TEXT_COLUMNS, "metadata") if name in file.schema_arrow.names]
    size, total = os.fstat(raw.fileno()).st_size, max(file.metadata.num_rows, 1)
    options = {"maps_as_pydicts": "strict"} if "map<" in str(file.schema_arrow) else {}
    for group, chunks in enumerate(read_chunks(raw, set(names))):
        large = _large_columns(file, raw, group, chunks)
        rows = _batch_rows(file, group, [name for name in names if name not in large], options)
        for row in _with_columns(rows, large) if large else rows:
            scan.rows += 1
            if isinstance(row, Fault):
                scan.fail_row(row, "Row", scan.rows)
            elif (fault := scan.rules.fault(row)) is not None:
                scan.fail_row(fault, "Row", scan.rows)
            elif sink is not None:
                sink({k: str(v) if type(v) is int else v for k, v in row.items()})
            if progress is not None and scan.rows % BATCH_ROWS == 0:
                progress(size * scan.rows // total)


def _with_columns(rows: Iterator[_Row], columns: dict[str, Iterator[str | Fault | None]]) -> Iterator[_Row]:
    """Rows with the cells of further columns."""
    for row in rows:
        here = {name: next(column) for name, column in columns.items()}
        fault = next((found for found in (row, *here.values()) if isinstance(found, Fault)), None)
        yield fault or {**cast("dict[str, Any]", row), **here}


def _large_columns(
    file: Any, raw: BinaryIO, group: int, chunks: list[Chunk]
) -> dict[str, Iterator[str | Fault | None]]:
    """The cells of the columns that pyarrow must not read. Raises PageError for what cannot be read here either."""
    found, held = [], 0
    for chunk in chunks:
        largest = max((page.full_size for page in chunk_pages(raw, chunk)), default=0)
        if largest <= LARGE_PAGE:
            continue
        column = next((column for column in file.schema if column.path == chunk.column), None)
        if column is None:
            raise PageError(f"column {chunk.column} is not in the schema")
        if can_stream(chunk, column):
            rows = file.metadata.row_group(group).num_rows
            if chunk.values != rows:
                raise PageError(f"column {chunk.column}: {chunk.values} values in {rows} rows")
            found.append((chunk, column))
            continue
        held += largest
        if held > LARGEST_PAGES:
            raise PageError(
                f"column {chunk.column}: a page has {largest} bytes; in columns that are nested, or compressed like this, at most "
                f"{LARGEST_PAGES} can be checked. Write the file with smaller pages (pyarrow: write_batch_size=32)"
            )
    memory = 0 if held or not found else LARGE_PAGES_MEMORY // len(found)
    return {chunk.column: cells(raw, chunk, column, memory) for chunk, column in found}


def _batch_rows(file: Any, group: int, names: list[str], options: dict[str, str]) -> Iterator[_Row]:
    """Rows of some columns, read in batches, with fewer rows in a batch where they are large."""
    import pyarrow as pa

    about = file.metadata.row_group(group)
    if not names:
        yield from ({} for _ in range(about.num_rows))
        return
    rows = int(BATCH_BYTES / max(about.total_byte_size / max(about.num_rows, 1), 1))
    for batch in file.iter_batches(
        batch_size=min(max(rows, 1), BATCH_ROWS), row_groups=[group], columns=names, use_threads=False
    ):
        yield from _rows(batch, options)
        del batch
        pa.default_memory_pool().release_unused()  # it keeps what the largest page needed


def _rows(batch: Any, options: dict[str, str]) -> list[_Row]:
    try:
        rows: list[_Row] = batch.to_pylist(**options)  # with the option it is far slower
    except (UnicodeDecodeError, KeyError):
        return [_row(batch, index, options) for index in range(batch.num_rows)]
    return rows


def _row(batch: Any, index: int, options: dict[str, str]) -> _Row:
    """One row of a batch in which some cell cannot be read."""
    cells: dict[str, Any] = {}
    for name in batch.schema.names:
        try:
            cells[name] = batch.column(name)[index].as_py(**options)
        except UnicodeDecodeError as error:
            return Fault(f"not UTF-8 at byte {error.start + 1} ({error.reason})", name)
        except KeyError as error:
            return Fault(f"duplicate key {error}", name)
    return cells

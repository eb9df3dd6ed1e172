"""Reading Parquet: text columns and metadata, batch by batch, without any conversion of values."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from osmosis_ai.datasets.problems import Fault, Problem
from osmosis_ai.datasets.row_rules import TEXT_COLUMNS
from osmosis_ai.datasets.scan import CellSink, Progress, Scan

BATCH_BYTES = 4 * 1024 * 1024
BATCH_ROWS = 2048
READ_BUFFER = 1024 * 1024


def scan_parquet(
    path: Path, scan: Scan, *, sink: CellSink | None = None, progress: Progress | None = None
) -> None:
    """Check all rows, which are numbered from 1; `sink` gets the cells of good rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # Without these settings a whole row group, which may be the whole file, is read at once.
        with pq.ParquetFile(path, pre_buffer=False, buffer_size=READ_BUFFER) as file:
            problem = _schema_problem(file.schema_arrow)
            if problem is not None:
                scan.fail(problem)
                return
            if scan.learn_columns(list(file.schema_arrow.names)):
                _check_rows(file, path.stat().st_size, scan, sink, progress)
    except (pa.ArrowException, OSError) as error:
        reason = " ".join(str(error).split())  # some of Arrow's texts end with a newline
        scan.fail(Problem(f"Invalid parquet file: {reason}", fatal=True))


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


def _check_rows(file: Any, size: int, scan: Scan, sink: CellSink | None, progress: Progress | None) -> None:
    import pyarrow as pa

    names = [name for name in (*TEXT_COLUMNS, "metadata") if name in file.schema_arrow.names]
    total = max(file.metadata.num_rows, 1)
    number = 0
    has_maps = "map<" in str(file.schema_arrow)
    for batch in _batches(file, names):
        for cells in _rows(batch, {"maps_as_pydicts": "strict"} if has_maps else {}):
            number += 1
            scan.rows += 1
            if isinstance(cells, Fault):
                scan.fail_row(cells, "Row", number)
            elif (fault := scan.rules.fault(cells)) is not None:
                scan.fail_row(fault, "Row", number)
            elif sink is not None:
                sink({k: str(v) if type(v) is int else v for k, v in cells.items()})
        del batch
        pa.default_memory_pool().release_unused()  # it keeps what the largest page needed
        if progress is not None:
            progress(size * number // total)


def _batches(file: Any, names: list[str]) -> Iterator[Any]:
    """Batches of rows, fewer of them where rows are large."""
    for group in range(file.num_row_groups):
        about = file.metadata.row_group(group)
        rows = int(BATCH_BYTES / max(about.total_byte_size / max(about.num_rows, 1), 1))
        yield from file.iter_batches(
            batch_size=min(max(rows, 1), BATCH_ROWS), row_groups=[group], columns=names, use_threads=False
        )


def _rows(batch: Any, options: dict[str, str]) -> list[dict[str, Any] | Fault]:
    try:
        rows: list[dict[str, Any] | Fault] = batch.to_pylist(**options)  # with the option it is far slower
    except (UnicodeDecodeError, KeyError):
        return [_row(batch, index, options) for index in range(batch.num_rows)]
    return rows


def _row(batch: Any, index: int, options: dict[str, str]) -> dict[str, Any] | Fault:
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

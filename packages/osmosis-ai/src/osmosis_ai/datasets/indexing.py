"""Turns a dataset file into normalised rows (`rows.parquet`) in the same pass that validates it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from osmosis_ai.datasets.rows import COLUMNS
from osmosis_ai.datasets.scan import ColumnRule
from osmosis_ai.datasets.validation import ValidationReport, validate_file

ROW_GROUP = 1024
ROW_GROUP_CHARACTERS = 8 * 1024 * 1024
PREVIEW_ROWS = 50
PREVIEW_CHARACTERS = 2000


@dataclass(slots=True)
class IndexedDataset:
    """The report and, when it is valid, the first rows for people to look at (long cells cut)."""

    report: ValidationReport
    preview: list[dict[str, Any]] = field(default_factory=list)


class _RowWriter:
    def __init__(self, path: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._pa = pa
        self.schema = pa.schema([("row_index", pa.int64()), *((name, pa.string()) for name in COLUMNS)])
        self._writer = pq.ParquetWriter(path, self.schema, compression="zstd")
        self._pending: list[dict[str, Any]] = []
        self._characters = 0
        self.preview: list[dict[str, Any]] = []

    def add(self, row_index: int, cells: dict[str, str | None]) -> None:
        if len(self.preview) < PREVIEW_ROWS:
            self.preview.append({k: _shorten(v) for k, v in cells.items() if v is not None})
        self._pending.append({"row_index": row_index, **cells})
        self._characters += sum(len(text) for text in cells.values() if text is not None)
        if len(self._pending) >= ROW_GROUP or self._characters >= ROW_GROUP_CHARACTERS:
            self.flush()

    def flush(self) -> None:
        if self._pending:
            self._writer.write_table(self._pa.Table.from_pylist(self._pending, schema=self.schema))
            self._pending, self._characters = [], 0
            self._pa.default_memory_pool().release_unused()

    def close(self) -> None:
        self.flush()
        self._writer.close()


def _shorten(text: str) -> str:
    return text if len(text) <= PREVIEW_CHARACTERS else text[:PREVIEW_CHARACTERS] + "…"


def index_file(
    source: str | Path, destination: str | Path, *, extension: str | None = None, columns: ColumnRule = "any"
) -> IndexedDataset:
    """Validate `source` and write its rows to `destination`; an invalid file leaves no destination behind."""
    destination = Path(destination)
    writer = _RowWriter(destination)
    try:
        report = validate_file(source, columns=columns, extension=extension, sink=writer.add)
    except BaseException:
        writer.close()
        destination.unlink(missing_ok=True)
        raise
    writer.close()
    if not report.valid:
        destination.unlink(missing_ok=True)
        return IndexedDataset(report)
    return IndexedDataset(report, writer.preview)

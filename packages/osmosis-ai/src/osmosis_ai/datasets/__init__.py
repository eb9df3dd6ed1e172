"""Datasets: the one validator and the one row format, used by CLI, platform and workers alike."""

from __future__ import annotations

from osmosis_ai.datasets.rows import DatasetRow, RowReader, row_from_cells
from osmosis_ai.datasets.validation import (
    EXTENSIONS,
    MAX_FILE_BYTES,
    MIN_ROWS,
    ValidationReport,
    validate_file,
)

__all__ = [
    "EXTENSIONS",
    "MAX_FILE_BYTES",
    "MIN_ROWS",
    "DatasetRow",
    "RowReader",
    "ValidationReport",
    "row_from_cells",
    "validate_file",
]

"""Normalised dataset rows and their Parquet file (`rows.parquet`)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

COLUMNS = ("system_prompt", "user_prompt", "ground_truth", "metadata")


@dataclass(frozen=True, slots=True)
class DatasetRow:
    """One example.

    `messages` are chat messages (system, then user; absent ones left out), `label` the reference answer or None,
    `metadata` an object or None (an empty object counts as None). `row_index` is the position in the file, from 0.
    """

    row_index: int
    messages: list[dict[str, Any]] = field(default_factory=list)
    label: str | None = None
    metadata: dict[str, Any] | None = None


def row_from_cells(row_index: int, cells: dict[str, str | None]) -> DatasetRow:
    """Build a row from its cells; every text arrives unchanged."""
    messages: list[dict[str, Any]] = []
    if cells.get("system_prompt"):
        messages.append({"role": "system", "content": cells["system_prompt"]})
    if cells.get("user_prompt") is not None:
        messages.append({"role": "user", "content": cells["user_prompt"]})
    text = cells.get("metadata")
    metadata = json.loads(text) if text else None
    return DatasetRow(row_index, messages, cells.get("ground_truth"), metadata or None)


class RowReader:
    """Random access to `rows.parquet`: reads only the row groups that hold the rows asked for.

    Raises FileNotFoundError when the file is missing and `ModuleNotFoundError` without the `parquet` extra.
    """

    def __init__(self, path: str | Path) -> None:
        import pyarrow.parquet as pq

        self.path = Path(path)
        self._file = pq.ParquetFile(self.path)
        self._starts = [0]
        for group in range(self._file.num_row_groups):
            self._starts.append(self._starts[-1] + self._file.metadata.row_group(group).num_rows)

    def __len__(self) -> int:
        return self._starts[-1]

    def read(self, indices: Sequence[int] | Iterable[int]) -> list[DatasetRow]:
        """The rows at `indices` (each in 0..len-1, any order, repeats allowed), in that order.

        Raises IndexError for an index outside.
        """
        wanted = list(indices)
        found = {index: row_from_cells(index, cells) for index, cells in self.cells(wanted).items()}
        return [found[i] for i in wanted]

    def cells(
        self, indices: Iterable[int], columns: Sequence[str] = COLUMNS
    ) -> dict[int, dict[str, str | None]]:
        """The cells of the rows at `indices` as they were uploaded, by index and column. Raises IndexError for an index outside."""
        pending = sorted(set(indices))
        for index in pending:
            if not 0 <= index < len(self):
                raise IndexError(f"row {index} is outside 0..{len(self) - 1} of {self.path}")
        found: dict[int, dict[str, str | None]] = {}
        for group in range(self._file.num_row_groups):
            first, after = self._starts[group], self._starts[group + 1]
            here = [i for i in pending if first <= i < after]
            if not here:
                continue
            table = self._file.read_row_group(group, columns=["row_index", *columns])
            for cells in table.take([i - first for i in here]).to_pylist():
                found[cells.pop("row_index")] = cells
        return found

    def close(self) -> None:
        """Close the file."""
        self._file.close()

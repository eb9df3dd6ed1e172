"""Looking into the rows of a dataset: a page of them, those that hold a text, and what its columns hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from osmosis_ai.datasets import RowReader
from osmosis_ai.datasets.rows import COLUMNS

# Somebody waits for the answer: of larger files the beginning is looked at (decoded bytes).
SCANNED_BYTES = 256 * 1024**2
SHOWN_CHARACTERS = 2000
PROMPT_CHARACTERS = 160


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows with `row_index` and their cells (long ones cut), how many there are, and of how many rows that was found out.

    `looked_at` is less than the dataset has when the rest was too large to be searched.
    """

    rows: list[dict[str, Any]]
    total: int
    looked_at: int


def rows_at(path: Path, offset: int, limit: int) -> Rows:
    """The rows from `offset` on."""
    reader = RowReader(path)
    try:
        found = reader.cells(range(offset, min(offset + limit, len(reader))))
        return Rows(
            [_shown(index, cells) for index, cells in sorted(found.items())], len(reader), len(reader)
        )
    finally:
        reader.close()


def prompts_of(path: Path, indices: Iterable[int]) -> dict[int, str]:
    """The beginning of each row's prompt on one line, by row; rows that the file does not have are left out."""
    reader = RowReader(path)
    try:
        known = [index for index in indices if index < len(reader)]
        found = reader.cells(known, ("user_prompt", "system_prompt"))
    finally:
        reader.close()
    return {
        index: _beginning(row["user_prompt"] or row["system_prompt"] or "") for index, row in found.items()
    }


def _beginning(text: str) -> str:
    line = " ".join(text[: 2 * PROMPT_CHARACTERS].split())
    cut = len(line) > PROMPT_CHARACTERS or len(text) > 2 * PROMPT_CHARACTERS
    return line[:PROMPT_CHARACTERS].rstrip() + "…" if cut else line


def rows_with(path: Path, text: str, offset: int, limit: int) -> Rows:
    """The rows of which any cell holds `text`, whatever its case."""
    import pyarrow.compute as pc

    rows: list[dict[str, Any]] = []
    total = looked_at = 0
    for batch in _batches(path):
        looked_at += batch.num_rows
        hits = None
        for column in COLUMNS:
            found = pc.fill_null(pc.match_substring(batch.column(column), text, ignore_case=True), False)
            hits = found if hits is None else pc.or_(hits, found)
        for cells in batch.filter(hits).to_pylist():
            if offset <= total < offset + limit:
                rows.append(_shown(cells.pop("row_index"), cells))
            total += 1
    return Rows(rows, total, looked_at)


@lru_cache(maxsize=256)
def column_facts(path: Path) -> list[dict[str, Any]]:
    """Of each column that holds something: how many cells are filled, and their mean and greatest length in characters.

    Kept by path: a blob never changes.
    """
    import pyarrow.compute as pc

    facts = {column: {"filled": 0, "characters": 0, "longest": 0} for column in COLUMNS}
    looked_at = 0
    for batch in _batches(path):
        looked_at += batch.num_rows
        for column in COLUMNS:
            lengths = pc.utf8_length(batch.column(column))
            fact = facts[column]
            fact["filled"] += pc.count(lengths).as_py()
            fact["characters"] += pc.sum(lengths).as_py() or 0
            fact["longest"] = max(fact["longest"], pc.max(lengths).as_py() or 0)
    return [
        {
            "column": column,
            "filled": fact["filled"],
            "of": looked_at,
            "mean_characters": round(fact["characters"] / fact["filled"]),
            "longest_characters": fact["longest"],
        }
        for column, fact in facts.items()
        if fact["filled"]
    ]


def _batches(path: Path) -> Iterator[Any]:
    import pyarrow.parquet as pq

    seen = 0
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=1024, columns=["row_index", *COLUMNS]):
            yield batch
            seen += batch.nbytes
            if seen > SCANNED_BYTES:
                return


def _shown(index: int, cells: dict[str, str | None]) -> dict[str, Any]:
    cut = {
        name: text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "…"
        for name, text in cells.items()
        if text is not None
    }
    return {"row_index": index, **cut}

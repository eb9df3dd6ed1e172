"""The column chunks of a Parquet file. pyarrow's own view of them ends the whole process when a column is encrypted."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from osmosis_ai.datasets.large_pages.thrift import LIST, PageError, Thrift

_CODECS = {0: "UNCOMPRESSED", 1: "SNAPPY", 2: "GZIP", 4: "BROTLI", 6: "ZSTD"}
_TAIL = 8
_BYTE_ARRAY = 6
_ROW_GROUPS, _COLUMNS = 4, 1
_LONGEST_FOOTER = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Chunk:
    """The values of one column in one row group. `codec` is a name as in the Parquet format, or `other`."""

    column: str
    codec: str
    is_text: bool
    encodings: frozenset[int]
    values: int
    start: int


def read_chunks(file: BinaryIO, names: set[str]) -> Iterator[list[Chunk]]:
    """The chunks of some top-level columns, row group by row group; encrypted ones are left out.

    Raises PageError for a footer that cannot be read, or is too large to be.
    """
    file.seek(-_TAIL, os.SEEK_END)
    length = int.from_bytes(file.read(_TAIL)[:4], "little")
    if length > _LONGEST_FOOTER:
        raise PageError(f"a footer of {length} bytes, at most {_LONGEST_FOOTER}; write larger row groups")
    file.seek(-_TAIL - length, os.SEEK_END)
    data = Thrift(file.read(length))
    try:
        for number, kind in data.fields():
            if number == _ROW_GROUPS and kind == LIST:
                for _ in range(data.items()[1]):
                    yield _row_group(data, names)
                return
            data.value(kind)
    except (LookupError, TypeError, AttributeError):
        raise PageError("the footer is damaged") from None


def _row_group(data: Thrift, names: set[str]) -> list[Chunk]:
    chunks: list[Chunk | None] = []
    for number, kind in data.fields():
        if number == _COLUMNS and kind == LIST:
            chunks = [_chunk(data.struct(), names) for _ in range(data.items()[1])]
        else:
            data.value(kind)
    return [chunk for chunk in chunks if chunk is not None]


def _chunk(found: dict[int, Any], names: set[str]) -> Chunk | None:
    about = found.get(3)
    if about is None or 8 in found:
        return None
    path = [part.decode("utf-8", "replace") for part in about[3]]
    if path[0] not in names:
        return None
    dictionary, start = about.get(11, 0), about[9]
    if not all(isinstance(number, int) for number in (about[1], about[4], about[5], start, dictionary)):
        raise TypeError
    return Chunk(
        column=".".join(path),
        codec=_CODECS.get(about[4], "other"),
        is_text=about[1] == _BYTE_ARRAY,
        encodings=frozenset(about[2]),
        values=about[5],
        start=dictionary if 0 < dictionary < start else start,
    )

"""Where the pages of a column chunk are and how large: read from their headers, without the pages themselves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from osmosis_ai.datasets.large_pages.footer import Chunk
from osmosis_ai.datasets.large_pages.thrift import PageError, Thrift

DATA, DICTIONARY, DATA_V2 = 0, 2, 3
RLE = 3
_INDEX = 1
_DETAILS = {DATA: 5, DICTIONARY: 7, DATA_V2: 8}
_FIRST_READ = 1024
_LONGEST_HEADER = 16 * 1024 * 1024  # statistics in it hold whole values with some writers


@dataclass(frozen=True, slots=True)
class Page:
    """One page: its body is `size` bytes at `start` of the file, and `full_size` bytes when decompressed.

    `kind` is one of `DATA`, `DICTIONARY` and `DATA_V2`; `encoding` and `level_encoding` are the numbers of the Parquet format.
    A page of `DATA_V2` begins with `levels` bytes of repetition and definition levels, which are never compressed.
    """

    kind: int
    start: int
    size: int
    full_size: int
    values: int
    encoding: int
    level_encoding: int
    levels: int
    compressed: bool


def chunk_pages(file: BinaryIO, chunk: Chunk) -> Iterator[Page]:
    """The pages of a column chunk in order; the values of data pages add up to the chunk's. Raises PageError."""
    at, left = chunk.start, chunk.values
    while left > 0:
        header, at = _header(file, at)
        page = _page(header, at)
        at += header[3]
        if page is None:
            continue
        if page.kind != DICTIONARY:
            left -= page.values
        if left < 0:
            raise PageError(f"column {chunk.column}: its pages have more values than they should")
        yield page


def _page(header: dict[int, Any], start: int) -> Page | None:
    kind, full_size, size = header[1], header[2], header[3]
    if kind == _INDEX:
        return None
    details: Any = header.get(_DETAILS.get(kind, -1))
    try:
        if kind == DATA_V2:
            levels, compressed = details[5] + details[6], details.get(7, True)
            page = Page(kind, start, size, full_size, details[1], details[4], RLE, levels, compressed)
        else:
            page = Page(kind, start, size, full_size, details[1], details[2], details.get(3, RLE), 0, True)
        possible = min(page.size - page.levels, page.full_size, page.values, page.levels) >= 0
    except (LookupError, TypeError, AttributeError):
        possible = False
    if not possible:
        raise PageError(f"an impossible page at byte {start}")
    return page


def _header(file: BinaryIO, at: int) -> tuple[dict[int, Any], int]:
    """The fields of the page header at a byte of the file, and where it ends."""
    length = _FIRST_READ
    while at >= 0 and length <= _LONGEST_HEADER:
        file.seek(at)
        data = Thrift(file.read(length))
        try:
            header = data.struct()
        except IndexError:
            length *= 4
            continue
        if not all(isinstance(header.get(number), int) for number in (1, 2, 3)) or header[3] < 0:
            break
        return header, at + data.at
    raise PageError(f"no page header at byte {at}")

"""The cells of a column of text, page by page."""

from __future__ import annotations

import io
import tempfile
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Any, BinaryIO

from osmosis_ai.datasets.large_pages.footer import Chunk
from osmosis_ai.datasets.large_pages.pages import DATA_V2, DICTIONARY, RLE, Page, chunk_pages
from osmosis_ai.datasets.large_pages.streams import STREAMED, Stream, page_stream, read_varint
from osmosis_ai.datasets.large_pages.thrift import PageError
from osmosis_ai.datasets.problems import Fault
from osmosis_ai.datasets.scan import MAX_ROW_BYTES

_PLAIN, _BIT_PACKED = 0, 4
_INDEXED = frozenset({2, 8})
_MOST_LEVEL_BYTES = 16 * 1024 * 1024
_MOST_INDEXED = 4 * 1024 * 1024
_DICTIONARY_IN_MEMORY = 4 * 1024 * 1024


def can_stream(chunk: Chunk, column: Any) -> bool:
    """Whether `cells` can read a column chunk; `column` is its `ColumnSchema` in pyarrow."""
    return bool(
        chunk.is_text
        and column.max_repetition_level == 0
        and column.max_definition_level <= 1
        and chunk.codec in STREAMED
        and chunk.encodings <= {_PLAIN, RLE, _BIT_PACKED, *_INDEXED}
    )


def cells(file: BinaryIO, chunk: Chunk, column: Any, memory: int) -> Iterator[str | Fault | None]:
    """The cells of a column chunk one by one; a Fault for one that is no UTF-8 or too large.

    Takes up to `memory` bytes for a page where that is faster. Raises PageError, or an error of pyarrow, where the pages are broken.
    """
    name, nullable = chunk.column, column.max_definition_level > 0
    with tempfile.SpooledTemporaryFile(max_size=_DICTIONARY_IN_MEMORY) as spool:
        reader = _Reader(file, chunk.codec, nullable, memory, _Dictionary(spool))
        try:
            for page in chunk_pages(file, chunk):
                for cell in reader.cells(page):
                    yield _text(cell, name)
        except IndexError:
            raise PageError(f"column {name}: a page ends too early") from None


def _text(cell: bytes | int | None, name: str) -> str | Fault | None:
    if cell is None:
        return None
    if isinstance(cell, int):
        return Fault(f"a cell may have at most {MAX_ROW_BYTES} bytes, this one has {cell}", name)
    try:
        return cell.decode()
    except UnicodeDecodeError as error:
        return Fault(f"not UTF-8 at byte {error.start + 1} ({error.reason})", name)


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads pages of one column chunk; a cell that is too large is told as its size."""

    file: BinaryIO
    codec: str
    nullable: bool
    memory: int
    dictionary: _Dictionary

    def cells(self, page: Page) -> Iterator[bytes | int | None]:
        """The cells of a page in order; none for a dictionary, which is kept."""
        if page.kind == DICTIONARY:
            if page.values > _MOST_INDEXED:
                raise PageError(
                    f"a dictionary of {page.values} values in {page.full_size} bytes; write smaller ones"
                )
            body = self._body(page)
            for _ in range(page.values):
                self.dictionary.add(_plain(body))
            return
        levels: BinaryIO
        if page.kind == DATA_V2:
            levels = page_stream(self.file, page.start, page.levels, "UNCOMPRESSED")
            body = self._body(page)
        else:
            body = self._body(page)
            levels = io.BytesIO(self._levels(body, page) if self.nullable else b"")
        values = self._values(page, body)
        present = _runs(levels, 1, page.values) if self.nullable else repeat(1, page.values)
        for there in present:
            value = next(values, None) if there else None
            if there and value is None:
                raise IndexError
            yield value

    def _body(self, page: Page) -> Stream:
        codec = self.codec if page.compressed else "UNCOMPRESSED"
        return page_stream(
            self.file, page.start + page.levels, page.size - page.levels, codec, memory=self.memory
        )

    def _levels(self, body: Stream, page: Page) -> bytes:
        length = _number(body)
        if page.level_encoding != RLE or length > _MOST_LEVEL_BYTES:
            raise PageError("definition levels that cannot be read")
        return _exactly(body, length)

    def _values(self, page: Page, body: Stream) -> Iterator[bytes | int]:
        if page.encoding == _PLAIN:
            while True:
                yield _plain(body)
        if page.encoding not in _INDEXED:
            raise PageError(f"a page with encoding {page.encoding}")
        width = _exactly(body, 1)[0]
        for index in _runs(body, width, page.values):
            yield self.dictionary.get(index)


def _plain(body: Stream) -> bytes | int:
    """The next value, or the size of one that is too large."""
    length = _number(body)
    if length <= MAX_ROW_BYTES:
        return _exactly(body, length)
    left = length
    while left > 0:
        left -= len(_exactly(body, min(left, MAX_ROW_BYTES)))
    return length


def _exactly(body: Stream, length: int) -> bytes:
    data = body.read(length)
    if len(data) < length:
        raise IndexError
    return data


def _number(body: Stream) -> int:
    return int.from_bytes(_exactly(body, 4), "little")


def _runs(data: BinaryIO, width: int, count: int) -> Iterator[int]:
    """`count` numbers of `width` bits in the format's mix of runs of one number and groups of eight."""
    if width > 32:
        raise PageError("numbers of more than 32 bits")
    mask = (1 << width) - 1
    while count > 0:
        head = read_varint(data)
        if head & 1:
            for _ in range(min(head >> 1, (count + 7) // 8)):
                bits = int.from_bytes(data.read(width), "little")
                for place in range(min(8, count)):
                    yield bits >> (place * width) & mask
                count -= min(8, count)
        else:
            number = int.from_bytes(data.read((width + 7) // 8), "little")
            run = min(head >> 1, count)
            yield from repeat(number, run)
            count -= run


class _Dictionary:
    """The values that pages refer to by number; many bytes of them lie in a temporary file."""

    def __init__(self, spool: Any) -> None:
        self._spool = spool
        self._starts = array("q", [0])
        self._too_large: dict[int, int] = {}

    def add(self, value: bytes | int) -> None:
        if isinstance(value, int):
            self._too_large[len(self._starts) - 1] = value
            value = b""
        self._spool.seek(self._starts[-1])
        self._spool.write(value)
        self._starts.append(self._starts[-1] + len(value))

    def get(self, index: int) -> bytes | int:
        """Raises IndexError for a value that is not there."""
        if index in self._too_large:
            return self._too_large[index]
        start, end = self._starts[index], self._starts[index + 1]
        self._spool.seek(start)
        value: bytes = self._spool.read(end - start)
        return value

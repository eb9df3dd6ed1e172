"""The content of one Parquet page as a stream, so that a page of any size is never in memory as a whole."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any, BinaryIO

from osmosis_ai.datasets.large_pages.thrift import PageError

type Stream = io.BufferedReader[Any]
STREAMED = frozenset({"UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD", "BROTLI"})
_BUFFER = 256 * 1024
# Writers of Snappy compress blocks of 64 KB (one of them: of 4 MB), none of which refers to another.
_SNAPPY_BLOCKS = 4 * 1024 * 1024
_LONGEST_ELEMENT = 64


def page_stream(file: BinaryIO, start: int, size: int, codec: str, *, memory: int = 0) -> Stream:
    """Read `size` bytes at `start` of `file`, decompressed; `codec` is one of `STREAMED`.

    Snappy has no streams. When `memory` bytes are enough, the page is decompressed at once, else block by block, which is slower.
    Raises PageError, or an error of pyarrow, for bytes that cannot be decompressed, at once or while the stream is read.
    """
    import pyarrow as pa

    if codec == "SNAPPY":
        return io.BufferedReader(_Pieces(_snappy(file, start, size, memory)), _BUFFER)
    stored: Stream = io.BufferedReader(_Section(file, start, size), _BUFFER)
    if codec == "UNCOMPRESSED":
        return stored
    opened: Any = pa.CompressedInputStream(pa.PythonFile(stored, "r"), codec.lower())
    return io.BufferedReader(opened, _BUFFER)


class _Section(io.RawIOBase):
    """A part of a file. Others may move the file's position between two reads."""

    def __init__(self, file: BinaryIO, start: int, size: int) -> None:
        self._file, self._at, self._end = file, start, start + size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._file.seek(self._at)
        data = self._file.read(min(len(buffer), self._end - self._at))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


class _Pieces(io.RawIOBase):
    """Pieces of bytes as one stream."""

    def __init__(self, pieces: Iterator[memoryview]) -> None:
        self._pieces, self._piece = pieces, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._piece:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._piece = piece
        part = self._piece[: len(buffer)]
        buffer[: len(part)] = part
        self._piece = self._piece[len(part) :]
        return len(part)


def _snappy(file: BinaryIO, start: int, size: int, memory: int) -> Iterator[memoryview]:
    stored: Stream = io.BufferedReader(_Section(file, start, size), _BUFFER)
    try:
        full_size = read_varint(stored)
        if size + full_size <= memory:
            stored = io.BufferedReader(_Section(file, start, size))
            yield _decompressed(stored.read(), full_size)
            return
        done = 0
        while done < full_size:
            try:
                blocks, length = _elements(stored, min(full_size - done, _SNAPPY_BLOCKS))
                piece = _decompressed(_varint(length) + blocks, length)
            except (OSError, PageError):
                # Damaged, or of a writer whose blocks are larger or refer to each other: that takes the whole page.
                file.seek(start)
                piece = _decompressed(file.read(size), full_size)[done:]
            yield piece
            done += len(piece)
    except IndexError:
        raise PageError("Snappy data ends too early") from None


def _decompressed(data: bytes, length: int) -> memoryview:
    import pyarrow as pa

    full = pa.Codec("snappy").decompress(data, decompressed_size=length, asbytes=False)
    return memoryview(full).cast("B")


def _elements(stored: Stream, wanted: int) -> tuple[bytes, int]:
    """The elements of the next blocks, and how many bytes they make."""
    parts: list[bytes] = []
    made = 0
    lengths, sizes = _LENGTHS, _SIZES
    while made < wanted:
        ahead = stored.peek(_BUFFER)
        at, end = 0, len(ahead) - _LONGEST_ELEMENT
        while made < wanted and at < end:
            tag = ahead[at]
            length = lengths[tag]
            if not length:
                break
            made += length
            at += sizes[tag]
        parts.append(stored.read(at))
        if made < wanted:  # a long literal, or the end of what was read ahead
            part, length = _element(stored)
            parts.append(part)
            made += length
    return b"".join(parts), made


def _element(stored: Stream) -> tuple[bytes, int]:
    head = stored.read(1)
    tag = head[0]
    if _LENGTHS[tag]:
        part = head + stored.read(_SIZES[tag] - 1)
        if len(part) < _SIZES[tag]:
            raise IndexError
        return part, _LENGTHS[tag]
    number = stored.read((tag >> 2) - 59)
    length = int.from_bytes(number, "little") + 1
    if length > _SNAPPY_BLOCKS:
        raise PageError(f"a Snappy block of {length} bytes")
    text = stored.read(length)
    if len(text) < length:
        raise IndexError
    return head + number + text, length


def _tables() -> tuple[list[int], list[int]]:
    """By an element's first byte: how many bytes it makes (0: told in the next ones), and its own size."""
    lengths, sizes = [], []
    for tag in range(256):
        kind, high = tag & 3, tag >> 2
        if kind == 0:
            lengths.append(high + 1 if high < 60 else 0)
            sizes.append(high + 2)
        else:
            lengths.append(4 + (high & 7) if kind == 1 else high + 1)
            sizes.append((2, 3, 5)[kind - 1])
    return lengths, sizes


_LENGTHS, _SIZES = _tables()


def read_varint(data: BinaryIO) -> int:
    """A number of seven bits a byte. Raises IndexError where the bytes end too early, PageError beyond 64 bits."""
    number = shift = 0
    while True:
        byte = data.read(1)[0]
        number |= (byte & 127) << shift
        if byte < 128:
            return number
        shift += 7
        if shift > 63:
            raise PageError("a number that is too long")


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])

"""Thrift's compact protocol, in which Parquet writes its footer and the headers of its pages."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, BinaryIO

LIST = 9
_DEEPEST = 16


class PageError(Exception):
    """The file's structure cannot be read; the message says where."""


def read_struct(data: BinaryIO, depth: int = 0) -> dict[int, Any]:
    """A struct as values by field number. Raises IndexError where the bytes end too early, PageError for what cannot be."""
    return {number: read_value(data, kind, depth) for number, kind in fields(data)}


def fields(data: BinaryIO) -> Iterator[tuple[int, int]]:
    """Number and kind of each field of a struct; the caller reads the value before it goes on."""
    number = 0
    while head := data.read(1)[0]:
        number = number + (head >> 4) if head >> 4 else _zigzag(data)
        yield number, head & 15


def items(data: BinaryIO) -> tuple[int, int]:
    """Kind and count of the items of a list, which come next."""
    head = data.read(1)[0]
    return head & 15, head >> 4 if head >> 4 < 15 else read_varint(data)


def read_value(data: BinaryIO, kind: int, depth: int = 0, *, in_list: bool = False) -> Any:
    """A value of a kind; texts are bytes."""
    if kind in (4, 5, 6):
        return _zigzag(data)
    if kind == 8:
        return _exactly(data, read_varint(data))
    if kind in (1, 2):
        return (data.read(1)[0] if in_list else kind) == 1
    if kind == 3:
        return data.read(1)[0]
    if kind == 7:
        return struct.unpack("<d", _exactly(data, 8))[0]
    if depth > _DEEPEST:
        raise PageError("the footer or a page header is nested too deeply")
    if kind in (LIST, 10):
        inner, count = items(data)
        return [read_value(data, inner, depth + 1, in_list=True) for _ in range(count)]
    if kind == 12:
        return read_struct(data, depth + 1)
    raise PageError("the footer or a page header has a field of an unknown kind")


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


def _zigzag(data: BinaryIO) -> int:
    number = read_varint(data)
    return (number >> 1) ^ -(number & 1)


def _exactly(data: BinaryIO, length: int) -> bytes:
    text = data.read(length)
    if len(text) < length:
        raise IndexError
    return text

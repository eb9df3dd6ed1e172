"""Thrift's compact protocol, in which Parquet writes its footer and the headers of its pages."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

LIST = 9
_DEEPEST = 16


class PageError(Exception):
    """The file's structure cannot be read; the message says where."""


class Thrift:
    """Reads values from bytes; `at` is the place of the next one.

    Everything raises IndexError where the bytes end too early, and PageError for what cannot be.
    """

    __slots__ = ("at", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def struct(self, depth: int = 0) -> dict[int, Any]:
        """A struct as values by field number."""
        return {
            number: self._zigzag() if 4 <= kind <= 6 else self.value(kind, depth)
            for number, kind in self.fields()
        }

    def fields(self) -> Iterator[tuple[int, int]]:
        """Number and kind of each field of a struct; the caller reads the value before it goes on."""
        number, data = 0, self.data
        while head := data[self.at]:
            self.at += 1
            number = number + (head >> 4) if head >> 4 else self._zigzag()
            yield number, head & 15
        self.at += 1

    def items(self) -> tuple[int, int]:
        """Kind and count of the items of a list, which come next."""
        head = self._byte()
        return head & 15, head >> 4 if head >> 4 < 15 else self._varint()

    def value(self, kind: int, depth: int = 0, *, in_list: bool = False) -> Any:
        """A value of a kind; texts are bytes."""
        if kind in (4, 5, 6):
            return self._zigzag()
        if kind == 8:
            return self._bytes(self._varint())
        if kind in (1, 2):
            return (self._byte() if in_list else kind) == 1
        if kind == 3:
            return self._byte()
        if kind == 7:
            return struct.unpack("<d", self._bytes(8))[0]
        if depth > _DEEPEST:
            raise PageError("the footer or a page header is nested too deeply")
        if kind in (LIST, 10):
            inner, count = self.items()
            return [self.value(inner, depth + 1, in_list=True) for _ in range(count)]
        if kind == 12:
            return self.struct(depth + 1)
        raise PageError("the footer or a page header has a field of an unknown kind")

    def _byte(self) -> int:
        byte = self.data[self.at]
        self.at += 1
        return byte

    def _bytes(self, length: int) -> bytes:
        end = self.at + length
        if end > len(self.data):
            raise IndexError
        text = self.data[self.at : end]
        self.at = end
        return text

    def _zigzag(self) -> int:
        number = self._varint()
        return (number >> 1) ^ -(number & 1)

    def _varint(self) -> int:
        byte = self.data[self.at]
        self.at += 1
        number, shift = byte & 127, 7
        while byte > 127:
            byte = self._byte()
            number |= (byte & 127) << shift
            shift += 7
            if shift > 70:
                raise PageError("a number that is too long")
        return number

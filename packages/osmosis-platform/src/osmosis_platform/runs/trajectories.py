"""Parts of a stored trajectory: a page of its steps (ATIF) or model calls (training), without reading the whole document.

Small documents are read as a whole. In large ones the steps in front are passed over, piece by piece; where every so many of them begins
is remembered, so that later pages start close by.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO

from osmosis_platform.storage.store import BlobStore

STEPS = 100
SMALL_BYTES = 1024**2
_EVERY = 100
_CHUNK = 1024**2
_REMEMBERED = 32
_decoder = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class Window:
    """Some steps of a trajectory. `total` is None as long as nobody has looked as far as the end; `more` says whether others follow.

    `facts` is what else the document says; of a large one only what is before its steps, and `extra` once its end was seen.
    """

    steps: list[dict[str, Any]]
    more: bool
    total: int | None
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class _Places:
    """Where every `_EVERY`-th step of a document begins, in bytes, as far as somebody has looked."""

    starts: list[int]
    facts: dict[str, Any]
    total: int | None = None


@dataclass(slots=True)
class _Known:
    places: OrderedDict[str, _Places] = field(default_factory=OrderedDict)
    guard: Lock = field(default_factory=Lock)


_known = _Known()


def window(blobs: BlobStore, sha256: str, offset: int, limit: int = STEPS, array: str = "steps") -> Window:
    """The steps from `offset` on, at most `limit`; `array` is where the document has them. Raises NotFound for a blob that is not stored."""
    path = blobs.path(sha256)
    with blobs.open(sha256) as file:
        if path.stat().st_size <= SMALL_BYTES:
            document = json.loads(file.read())
            steps = document.pop(array)
            return Window(steps[offset : offset + limit], offset + limit < len(steps), len(steps), document)
        return _large(file, path, sha256, offset, limit, array)


def _large(file: BinaryIO, path: Path, sha256: str, offset: int, limit: int, array: str) -> Window:
    with _known.guard:
        known = _known.places.get(sha256)
    places = _Places(list(known.starts), known.facts, known.total) if known else _beginning(file, array)
    index = min(offset // _EVERY, len(places.starts) - 1)
    number, ranges, more = index * _EVERY, [], False
    rest = _Text(file, places.starts[index])
    for start, end in _elements(rest):
        if number >= offset + limit:
            more = True
            break
        if number == len(places.starts) * _EVERY:
            places.starts.append(start)
        if number >= offset:
            ranges.append((start, end))
        number += 1
    else:
        places.total = number
        places.facts = {**places.facts, **_extra(file, rest)}
    with _known.guard:
        _known.places[sha256] = places
        _known.places.move_to_end(sha256)
        if len(_known.places) > _REMEMBERED:
            _known.places.popitem(last=False)
    with path.open("rb") as again:
        return Window([_element(again, *span) for span in ranges], more, places.total, places.facts)


def _extra(file: BinaryIO, text: _Text) -> dict[str, Any]:
    """The document's `extra`, if it comes after its steps: `text` stands at their end. Empty without one."""
    text.take("]")
    while text.peek() == ",":
        text.take(",")
        key = text.value()
        text.take(":")
        text.peek()
        start = text.position
        text.value()
        if key == "extra":
            return {key: _element(file, start, text.position)}
    return {}


def _element(file: BinaryIO, start: int, end: int) -> Any:
    file.seek(start)
    return json.loads(file.read(end - start))


class _Text:
    """A JSON document from some byte on. Decoded as Latin-1, so that characters are bytes: only structure is looked at, which is ASCII."""

    def __init__(self, file: BinaryIO, start: int) -> None:
        self._file, self._base, self._text, self._at, self._ended = file, start, "", 0, False
        file.seek(start)

    @property
    def position(self) -> int:
        """The byte that comes next."""
        return self._base + self._at

    def peek(self) -> str:
        """The next character that is no white space; empty at the end."""
        while True:
            while self._at < len(self._text):
                if not self._text[self._at].isspace():
                    return self._text[self._at]
                self._at += 1
            if not self._more():
                return ""

    def take(self, expected: str) -> None:
        """Pass over one character; raises ValueError for another one."""
        if self.peek() != expected:
            raise ValueError(f"{expected!r} expected at byte {self.position}")
        self._at += 1

    def value(self) -> Any:
        """Pass over a value and return it; text in it is not decoded."""
        self.peek()
        while True:
            try:
                found, end = _decoder.raw_decode(self._text, self._at)
            except json.JSONDecodeError:
                if not self._more():
                    raise
                continue
            if end == len(self._text) and self._more():
                continue  # a number might go on
            self._at = end
            return found

    def _more(self) -> bool:
        if self._ended:
            return False
        rest = self._text[self._at :]
        chunk = self._file.read(max(_CHUNK, len(rest)))
        self._ended = not chunk
        self._base, self._text, self._at = self._base + self._at, rest + chunk.decode("latin-1"), 0
        return not self._ended


def _beginning(file: BinaryIO, array: str) -> _Places:
    """Where the elements of a top-level array begin, and what the document says before it."""
    text = _Text(file, 0)
    text.take("{")
    values: dict[str, tuple[int, int]] = {}
    while True:
        key = text.value()
        text.take(":")
        if text.peek() == "[" and key == array:
            text.take("[")
            return _Places([text.position], {name: _element(file, *span) for name, span in values.items()})
        start = text.position
        text.value()
        values[key] = (start, text.position)
        text.take(",")


def _elements(text: _Text) -> Iterator[tuple[int, int]]:
    """Where each element of an array begins and ends, up to the array's end."""
    while text.peek() != "]":
        start = text.position
        text.value()
        yield start, text.position
        if text.peek() == ",":
            text.take(",")

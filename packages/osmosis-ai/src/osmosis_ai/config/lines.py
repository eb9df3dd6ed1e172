"""On which line of a TOML file a key stands. The text must be valid TOML: it is read before by the standard library."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_STRING = re.compile(
    r'"""(?:\\.|(?!""").)*"{3,5}|' + r"'''(?:(?!''').)*'{3,5}|" + r'"(?:\\.|[^"\\])*"|' + r"'[^']*'",
    re.DOTALL,
)
_OTHER_VALUE = re.compile(r"[^,\]}\n#]+")


@dataclass(slots=True)
class _Place:
    line: int
    keys: dict[str, _Place] = field(default_factory=dict)


class KeyLines:
    """Finds the line of a dotted path such as `agents.0.model.type` (items of arrays are counted from 0)."""

    def __init__(self, text: str) -> None:
        self._root = _Scanner(text).scan()

    def of(self, path: str) -> int | None:
        """The line (from 1) of the key, or of the innermost table on the way to it that is in the file; None without any."""
        place, line = self._root, None
        for part in path.split("."):
            below = place.keys.get(part)
            if below is not None:  # a part that is no key names a variant, not a level
                place, line = below, below.line
        return line


class _Scanner:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def scan(self) -> _Place:
        root = table = _Place(0)
        while True:
            self._skip(_BLANK)
            if self._at >= len(self._text):
                return root
            if self._text.startswith("[", self._at):
                table = self._header(root)
            else:
                self._pair(table)

    def _header(self, root: _Place) -> _Place:
        line = self._line()
        is_array = self._text.startswith("[[", self._at)
        self._at += 2 if is_array else 1
        place = root
        keys = self._keys()
        for number, key in enumerate(keys):
            known = place.keys.get(key)
            place = place.keys.setdefault(key, _Place(line))
            last = number == len(keys) - 1
            if last and is_array:
                place = place.keys.setdefault(str(len(place.keys)), _Place(line))
            elif last:
                if known is None or not known.keys:
                    place.line = line
            elif "0" in place.keys:  # a table of the last item of an array
                place = place.keys[str(len(place.keys) - 1)]
        self._skip(_SPACE)
        self._at += 2 if is_array else 1
        return place

    def _pair(self, table: _Place) -> None:
        line = self._line()
        place = table
        for key in self._keys():
            place = place.keys.setdefault(key, _Place(line))
        self._skip(_SPACE)
        self._at += 1  # the equals sign
        self._skip(_SPACE)
        self._value(place)

    def _keys(self) -> list[str]:
        """A dotted key; stops behind it."""
        keys: list[str] = []
        while True:
            self._skip(_SPACE)
            found = _STRING.match(self._text, self._at) or _BARE.match(self._text, self._at)
            if found is None:
                return keys
            keys.append(found[0].strip("\"'"))
            self._at = found.end()
            self._skip(_SPACE)
            if not self._text.startswith(".", self._at):
                return keys
            self._at += 1

    def _value(self, place: _Place) -> None:
        start = self._text[self._at : self._at + 1]
        if start == "[":
            self._inside("]", place, is_table=False)
        elif start == "{":
            self._inside("}", place, is_table=True)
        else:
            found = _STRING.match(self._text, self._at) or _OTHER_VALUE.match(self._text, self._at)
            self._at = found.end() if found else self._at + 1

    def _inside(self, end: str, place: _Place, *, is_table: bool) -> None:
        self._at += 1
        number = 0
        while True:
            self._skip(_BLANK)
            if self._text.startswith(end, self._at) or self._at >= len(self._text):
                self._at += 1
                return
            if is_table:
                self._pair(place)
            else:
                item = place.keys.setdefault(str(number), _Place(self._line()))
                self._value(item)
                number += 1
            self._skip(_BLANK)
            if self._text.startswith(",", self._at):
                self._at += 1

    def _skip(self, pattern: re.Pattern[str]) -> None:
        found = pattern.match(self._text, self._at)
        if found is not None:
            self._at = found.end()

    def _line(self) -> int:
        return self._text.count("\n", 0, self._at) + 1

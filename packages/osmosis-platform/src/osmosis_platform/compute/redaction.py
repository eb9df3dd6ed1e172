"""Takes secret values out of text that people will read, and out of files before they are stored."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import quote

# Shorter values would hit ordinary words; a secret that short protects nothing.
_SHORTEST = 4
# In binary content short values would hit by chance: weights of a model must not change because of four equal bytes.
_SHORTEST_IN_BINARY = 8
_BINARY_PROBE = 8000
_LARGEST_DOCUMENT = 64 * 1024**2


class Redactor:
    """Replaces each secret value, as it is and as JSON and URLs write it, by `[NAME]`."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        names: dict[str, str] = {}
        for name, value in secrets.items():
            for part in {value, *value.splitlines()}:
                for form in (part, json.dumps(part)[1:-1], quote(part, safe="")):
                    if len(form.strip()) >= _SHORTEST:
                        names.setdefault(form, name)
        self._names = names
        # Longest first, so that a value that begins another one does not leave its rest behind.
        forms = sorted(names, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, forms))) if forms else None
        encoded = [form.encode() for form in forms]
        self._in_text = _bytes_pattern(encoded)
        self._in_binary = _bytes_pattern([form for form in encoded if len(form) >= _SHORTEST_IN_BINARY])

    def __call__(self, text: str) -> str:
        """The text without secrets."""
        if self._pattern is None:
            return text
        return self._pattern.sub(lambda match: f"[{self._names[match[0]]}]", text)

    def deep(self, value: Any) -> Any:
        """The same for every text inside lists and dictionaries, keys included."""
        if isinstance(value, str):
            return self(value)
        if isinstance(value, list):
            return [self.deep(item) for item in value]
        if isinstance(value, dict):
            return {self.deep(key): self.deep(item) for key, item in value.items()}
        return value

    def masked_file(self, content: bytes) -> Iterator[bytes] | None:
        """The content of a file without secrets, in pieces; None when it holds none. A memory map serves as `content` too.

        JSON stays JSON and text stays text. In binary content each value becomes as many asterisks, so that nothing moves; values
        that it holds compressed or encrypted are not seen.
        """
        binary = b"\0" in content[:_BINARY_PROBE]
        pattern = self._in_binary if binary else self._in_text
        if pattern is None or pattern.search(content) is None:
            return None
        if binary:
            return _replaced(pattern, content, lambda found: b"*" * len(found))
        document = self._masked_document(content)
        if document is not None:
            return iter((document,))
        return _replaced(pattern, content, lambda found: f"[{self._names[found.decode()]}]".encode())

    def _masked_document(self, content: bytes) -> bytes | None:
        """The content as JSON whose strings hold no secret, or None when it is no JSON."""
        if len(content) > _LARGEST_DOCUMENT:
            return None
        try:
            return json.dumps(self.deep(json.loads(bytes(content)))).encode()
        except (ValueError, RecursionError):
            return None


def _bytes_pattern(forms: list[bytes]) -> re.Pattern[bytes] | None:
    return re.compile(b"|".join(map(re.escape, forms))) if forms else None


def _replaced(
    pattern: re.Pattern[bytes], content: bytes, replacement: Callable[[bytes], bytes]
) -> Iterator[bytes]:
    end = 0
    for match in pattern.finditer(content):
        yield content[end : match.start()]
        yield replacement(match[0])
        end = match.end()
    yield content[end:]

"""Takes secret values out of text that people will read."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

# Shorter values would hit ordinary words; a secret that short protects nothing.
_SHORTEST = 4


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

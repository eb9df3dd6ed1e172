"""Loading the nearest ``.env`` file; the real environment wins."""

import os
import re
from pathlib import Path

_LINE = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*?)\s*$")


def parse_env(text: str) -> dict[str, str]:
    """Names and values of a ``.env`` text. Quotes around a value are removed; an unquoted `` #`` starts a comment."""
    values: dict[str, str] = {}
    for line in text.splitlines():
        match = None if line.lstrip().startswith("#") else _LINE.match(line)
        if match is None:
            continue
        name, value = match.groups()
        if value[:1] in {'"', "'"} and (end := value.find(value[0], 1)) > 0:
            value = value[1:end]
        else:
            value = re.split(r"\s#", value, maxsplit=1)[0].rstrip()
        values[name] = value
    return values


def load_nearest_env(start: Path) -> Path | None:
    """Read the first ``.env`` found from ``start`` upwards into the environment; returns its path."""
    for folder in (start, *start.parents):
        path = folder / ".env"
        try:
            if path.is_file():
                for name, value in parse_env(path.read_text(encoding="utf-8")).items():
                    os.environ.setdefault(name, value)
                return path
        except (OSError, UnicodeDecodeError):
            return None  # a file that cannot be read sets nothing; the command says what it misses
    return None

"""Rollouts that passed their check: the same code in the same environment is not imported a second time.

Importing an agent framework takes seconds; submitting the same rollout with another config is common.
"""

import hashlib
import os
import sys
from pathlib import Path

from osmosis_ai.platform.auth.store import config_folder

_CODE = {".py", ".toml"}
_SKIPPED = {"__pycache__", ".venv", ".git", "node_modules"}


def passed_before(folder: Path, entrypoint: str) -> Path:
    """The marker of this code in this environment; it exists when the check has passed."""
    digest = hashlib.sha256(entrypoint.encode())
    for part in (sys.executable, *_environment(), *_sources(folder)):
        digest.update(b"\0" + (part if isinstance(part, bytes) else part.encode()))
    return config_folder() / "cache" / "preflight" / digest.hexdigest()


def remember(marker: Path) -> None:
    """Record that the check has passed; a cache that cannot be written is only slower."""
    try:
        marker.parent.mkdir(parents=True, exist_ok=True)
        marker.touch()
    except OSError:
        return


def _environment() -> list[str]:
    """Names of the installed distributions, which contain their versions."""
    names = [
        name
        for place in sys.path
        if os.path.isdir(place)
        for name in os.listdir(place)
        if name.endswith(".dist-info")
    ]
    return sorted(names)


def _sources(folder: Path) -> list[str | bytes]:
    parts: list[str | bytes] = [str(folder)]
    for path in sorted(folder.rglob("*")):
        if path.suffix in _CODE and path.is_file() and not _SKIPPED & set(path.relative_to(folder).parts):
            parts += [str(path.relative_to(folder)), path.read_bytes()]
    return parts

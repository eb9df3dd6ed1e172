"""The state folder: where on the server the weights lie, and what they belong to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from osmosis_trainer.engines.tinker.settings import TinkerSettings
from osmosis_trainer.errors import StateError
from osmosis_trainer.learner.saving import atomic_folder

_FILE = "tinker.json"
_FORMAT = 1


def write_state(folder: Path, settings: TinkerSettings, path: str, version: int) -> None:
    """Write that policy `version` lies at `path` on the server."""
    state = {
        "format": _FORMAT,
        "server": settings.url,
        "path": path,
        "policy_version": version,
        **_identity(settings),
    }
    with atomic_folder(folder) as draft:
        (draft / _FILE).write_text(json.dumps(state, indent=1), encoding="utf-8")


def read_state(folder: Path, settings: TinkerSettings) -> tuple[str, int]:
    """Path and policy version. Raises StateError when the folder is not whole or belongs to another model."""
    file = folder / _FILE
    try:
        state: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        path, version = str(state["path"]), int(state["policy_version"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StateError(f"{file} cannot be read: {error!r}") from error
    if state.get("format") != _FORMAT:
        raise StateError(f"{file} has another format than {_FORMAT}; resume with the version that wrote it")
    for name, wanted in _identity(settings).items():
        if state.get(name) != wanted:
            raise StateError(f"{file} belongs to {name} {state.get(name)!r}, but this run uses {wanted!r}")
    return path, version


def _identity(settings: TinkerSettings) -> dict[str, Any]:
    return {"base_model": settings.base_model, "lora_rank": settings.rank}

"""A small base model that needs no download, and the script that makes it (`python -m osmosis_trainer.tiny.make OUT`)."""

from __future__ import annotations

from pathlib import Path

from osmosis_trainer.errors import ConfigError

# Name of the shipped model as it appears in configs and model lists.
TINY_MULTIPLY = "osmosis/tiny-multiply"

_FOLDERS = {TINY_MULTIPLY: "tiny-multiply"}


def model_names() -> list[str]:
    """Names of the shipped models."""
    return sorted(_FOLDERS)


def model_path(name: str) -> Path:
    """Folder of a shipped model, loadable with transformers. Raises ConfigError for a name that is not shipped."""
    try:
        folder = _FOLDERS[name]
    except KeyError:
        raise ConfigError(
            f"no shipped model is called {name!r}; shipped are {', '.join(model_names())}"
        ) from None
    return Path(__file__).parent / folder

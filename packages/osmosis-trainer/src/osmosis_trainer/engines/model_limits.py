"""What the files of a base model say before its weights are read."""

from __future__ import annotations

import json
from pathlib import Path

from osmosis_trainer.errors import ConfigError


def model_context(model: Path) -> int:
    """Longest sequence, in tokens, that the model in the folder was made for."""
    try:
        config = json.loads((model / "config.json").read_text(encoding="utf-8"))
        return int((config | config.get("text_config", {}))["max_position_embeddings"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{model} is no model folder: its config.json gives no context length ({error!r})"
        ) from error

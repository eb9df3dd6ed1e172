"""What the files of a model say about it: read from its folder, without the libraries that load models."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

_LARGEST_HEADER = 100 * 1024**2
# How transformers names classes that write text. Whether an engine can train the model is known when it has loaded it.
_WRITES_TEXT = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")


def why_untrainable(folder: Path) -> str | None:
    """What the `config.json` of a model folder says that no engine could train; None where nothing speaks against it."""
    try:
        config = json.loads((folder / "config.json").read_text("utf-8"))
    except (OSError, ValueError) as error:
        return f"its config.json cannot be read ({error})"
    if not isinstance(config, dict):
        return "its config.json holds no JSON object"
    if config.get("is_encoder_decoder") is True:
        return "it is an encoder with a decoder, and only models that continue a text can be trained"
    names = config.get("architectures")
    if not isinstance(names, list) or not names or any(str(name).endswith(_WRITES_TEXT) for name in names):
        return None
    return f"it is a {names[0]}, which writes no text; use the causal language model ({_WRITES_TEXT[0]})"


def model_facts(folder: Path) -> dict[str, int]:
    """`parameters` and `context_window` (tokens) of a model folder, as far as its files tell."""
    found = {"parameters": _parameters(folder), "context_window": _context_window(folder)}
    return {name: value for name, value in found.items() if value is not None}


def _context_window(folder: Path) -> int | None:
    try:
        config: dict[str, Any] = json.loads((folder / "config.json").read_text("utf-8"))
        value = {**config, **config.get("text_config", {})}.get("max_position_embeddings")
    except (OSError, ValueError, TypeError, AttributeError):
        return None
    return value if type(value) is int and value > 0 else None


def _parameters(folder: Path) -> int | None:
    """Sizes of all tensors, from the headers of the safetensors files: 8 bytes of length, then JSON."""
    total = 0
    try:
        for path in sorted(folder.glob("*.safetensors")):
            with path.open("rb") as file:
                length = int.from_bytes(file.read(8), "little")
                if length > _LARGEST_HEADER:
                    return None
                header = json.loads(file.read(length))
            total += sum(math.prod(t["shape"]) for name, t in header.items() if name != "__metadata__")
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
    return total or None

"""Reading a base model from its folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING
from transformers.utils.logging import disable_progress_bar

from osmosis_trainer.errors import ConfigError, UnsupportedModelError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def load_base(folder: Path, device: str = "auto", dtype: str = "auto") -> tuple[Any, PreTrainedTokenizerFast]:
    """The frozen model in `folder` (transformers format; nothing is downloaded) and its tokenizer.

    "auto": a GPU in bfloat16 when there is one, else the CPU in float32. Raises ConfigError for a folder without a model
    or an unknown `dtype`, UnsupportedModelError for an architecture that is no text model.
    """
    if not (folder / "config.json").is_file():
        raise ConfigError(f"{folder} is no model folder: config.json is missing")
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if dtype == "auto":
        dtype = "float32" if device == "cpu" else "bfloat16"
    if dtype not in _DTYPES:
        raise ConfigError(f"dtype is {dtype!r}; choose auto, {', '.join(_DTYPES)}")
    disable_progress_bar()  # a run log is no terminal
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = _load_text_model(folder, _DTYPES[dtype])
    return model.to(device).eval().requires_grad_(False), tokenizer


def _load_text_model(folder: Path, dtype: torch.dtype) -> Any:
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
        if not _has_language_model(config):
            raise UnsupportedModelError(
                f"{folder} holds a model of type {config.model_type!r}, which takes more than text; "
                "save its language model alone and use that"
            )
        return AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, dtype=dtype)
    except ValueError as error:
        # What transformers says when a type is unknown to it, or has no causal language model.
        reason = str(error).partition("\n")[0]
        raise UnsupportedModelError(
            f"{folder} holds no language model that can be loaded: {reason}"
        ) from error


def _has_language_model(config: Any) -> bool:
    """Whether the config is one of a language model, or of a model that transformers loads the language part of alone."""
    text = config.get_text_config()
    causal = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), None)
    return text is config or getattr(causal, "config_class", None) is type(text)

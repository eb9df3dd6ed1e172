"""What is uploaded of an adapter: its files, its configuration without paths of this machine, and a model card."""

from __future__ import annotations

import json
from pathlib import Path

from osmosis_platform.adapters.base_models import on_hub
from osmosis_platform.adapters.models import LoraModel
from osmosis_platform.errors import InvalidInput

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
TOKENIZER = (
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "vocab.json",
    "merges.txt",
)


def files_of(folder: Path) -> list[str]:
    """Names of the files that go up as they are. Raises InvalidInput for an adapter without weights."""
    if not (folder / WEIGHTS).is_file():
        raise InvalidInput(f"The adapter has no {WEIGHTS}, so it cannot be uploaded.")
    return [WEIGHTS, *(name for name in TOKENIZER if (folder / name).is_file())]


def config_of(folder: Path, model: LoraModel) -> str:
    """`adapter_config.json`, naming the base model instead of the folder that holds it here."""
    config = json.loads((folder / CONFIG).read_text("utf-8"))
    return json.dumps({**config, "base_model_name_or_path": _base_name(model)}, indent=2) + "\n"


def card_of(model: LoraModel) -> str:
    """The model card, with the metadata that the hub reads."""
    base = _base_name(model)
    head = ["---", "library_name: peft", "pipeline_tag: text-generation", "tags:", "- lora", "- osmosis"]
    if on_hub(model.base_model):
        head.insert(1, f"base_model: {base}")
    reward = f", with reward {model.reward:.4g}" if model.reward is not None else ""
    return "\n".join(
        [
            *head,
            "---",
            "",
            f"# {model.name}",
            "",
            f"A LoRA adapter for `{base}` in PEFT format: the checkpoint of step {model.step} of reinforcement learning with "
            f"Osmosis{reward}.",
            "",
        ]
    )


def _base_name(model: LoraModel) -> str:
    return (
        Path(model.base_model.name).name if model.base_model.name.startswith("/") else model.base_model.name
    )

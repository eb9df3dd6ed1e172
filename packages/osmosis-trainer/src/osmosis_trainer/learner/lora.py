"""The adapter being trained: LoRA on every linear layer, through PEFT."""

from __future__ import annotations

import json
import shutil
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from peft.tuners.lora import Linear
from peft.utils.transformers_weight_conversion import convert_peft_config_for_transformers
from safetensors.torch import load_file
from torch import nn

from osmosis_trainer.errors import StateError, UnsupportedModelError
from osmosis_trainer.learner import experts

CONFIG_FILE = "adapter_config.json"
ADAPTER_FILE = "adapter_model.safetensors"


@dataclass(frozen=True, slots=True)
class LoraSettings:
    """Rank r >= 1, scale alpha / r, and the seed of the random A matrices (B starts at zero)."""

    rank: int = 16
    alpha: float = 32.0
    seed: int = 0


def attach(model: Any, settings: LoraSettings) -> Any:
    """Freeze `model` and put an adapter on all its linear layers except head and embeddings; returns the PEFT model.

    Adapters on every layer, not attention alone, are what matches full training ("LoRA without regret", 2025). Experts
    that are fused into one 3-D parameter get matrices of rank r each; the router that picks them stays as it is. Raises
    UnsupportedModelError where PEFT cannot adapt every linear layer.
    """
    head = model.get_output_embeddings()
    linear = [name for name, module in model.named_modules() if _is_linear(module) and module is not head]
    if not linear:
        raise UnsupportedModelError(
            f"models of type {model.config.model_type!r} have no linear layers that LoRA could be put on"
        )
    taken = _names_of_experts(model, {_last(name) for name in linear})
    by_parameter = {name: ["weight"] for name in linear if _last(name) in taken}
    config = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=0.0,
        bias="none",
        target_modules=_targets(model, {name for name in linear if _last(name) not in taken}),
        target_parameters=_short_names(experts.fused(model) | by_parameter) or None,
        task_type="CAUSAL_LM",
    )
    # PEFT would add B A to the weight of a layer named by its parameter: the same function, but in bfloat16 small
    # updates would be rounded away. Matrices and names are those of any linear layer.
    config._register_custom_module({nn.Linear: Linear})
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        # peft 0.21 asks transformers for an attribute that was renamed; nothing a user could change.
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)
        torch.manual_seed(settings.seed)
        peft_model = get_peft_model(model, config)
    _require_adapters(peft_model.get_base_model(), settings)
    return peft_model.eval()


def _is_linear(module: nn.Module) -> bool:
    """Routers that derive from a linear layer and return more than one are none."""
    return isinstance(module, nn.Linear) and type(module).forward is nn.Linear.forward


def _targets(model: Any, chosen: set[str]) -> list[str]:
    """The shortest ends of the paths of the `chosen` modules that are no ends of other modules' paths."""
    others = {end for name, _ in model.named_modules() if name not in chosen for end in _ends(name)}
    return sorted({next(end for end in _ends(name) if end not in others) for name in chosen})


def _ends(path: str) -> list[str]:
    """`a.b.c` ends in `c`, `b.c` and `a.b.c`."""
    parts = path.split(".")
    return [".".join(parts[i:]) for i in reversed(range(len(parts)))]


def _names_of_experts(model: Any, names: set[str]) -> set[str]:
    """Those of the `names` of linear layers that PEFT takes for old names of fused experts in a model of this type.

    Such a layer (a dense one between layers of experts, or an expert that all tokens share) is named by its parameter.
    """
    taken = set()
    for name in names:
        config = LoraConfig(target_modules=[name])
        try:
            convert_peft_config_for_transformers(config, model, None)
        except ValueError:  # it misses other names of the same fused parameter
            taken.add(name)
        else:
            if name not in (config.target_modules or ()):
                taken.add(name)
    return taken


def _require_adapters(base: Any, settings: LoraSettings) -> None:
    """PEFT rewrites targets of some model types; nothing may be left out or get another rank."""
    head = base.get_output_embeddings()
    for name, module in base.named_modules():
        inside = name.endswith(".base_layer") or ".lora_" in name
        if _is_linear(module) and module is not head and not inside:
            raise UnsupportedModelError(
                f"PEFT puts no LoRA on {name} of a model of type {base.config.model_type!r}; "
                "such a model cannot be trained in full"
            )
    for name, module in base.named_modules():
        if set(getattr(module, "r", {}).values()) - {settings.rank}:
            raise UnsupportedModelError(
                f"PEFT gives {name} another rank than {settings.rank} in a model of type {base.config.model_type!r}"
            )


def _last(path: str) -> str:
    return path.rpartition(".")[2]


def _short_names(parameters_of: dict[str, list[str]]) -> list[str]:
    """The names of parameters, by module, without the part that differs from layer to layer."""
    return sorted(
        {
            ".".join([*path.split(".")[-2:], parameter])
            for path, parameters in parameters_of.items()
            for parameter in parameters
        }
    )


def trainable(model: Any) -> dict[str, nn.Parameter]:
    """The adapter's parameters by name, in a fixed order."""
    return {name: p for name, p in sorted(model.named_parameters()) if p.requires_grad}


def export(model: Any, folder: Path) -> None:
    """Write the adapter in PEFT format, reloadable by `PeftModel.from_pretrained`. The folder is replaced."""
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    model.save_pretrained(folder, save_embedding_layers=False)
    (folder / "README.md").unlink(missing_ok=True)
    # PEFT keeps the targets as a set: in order the same adapter makes the same bytes in every process.
    config_file = folder / CONFIG_FILE
    config = json.loads(config_file.read_text(encoding="utf-8"))
    config = {
        key: sorted(value) if key.startswith("target_") and isinstance(value, list) else value
        for key, value in config.items()
    }
    config_file.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def restore(model: Any, folder: Path, settings: LoraSettings) -> None:
    """Load the weights written by `export` into the adapter. Raises StateError when they do not fit it exactly."""
    config_file, weights_file = folder / CONFIG_FILE, folder / ADAPTER_FILE
    if not config_file.is_file() or not weights_file.is_file():
        raise StateError(f"{folder} has no adapter: {CONFIG_FILE} and {ADAPTER_FILE} must both be there")
    config = json.loads(config_file.read_text(encoding="utf-8"))
    if (config.get("r"), config.get("lora_alpha")) != (settings.rank, settings.alpha):
        raise StateError(
            f"{config_file} was trained with rank {config.get('r')} and alpha {config.get('lora_alpha')}, "
            f"but this run uses rank {settings.rank} and alpha {settings.alpha}"
        )
    saved = load_file(weights_file)
    wanted = {name.replace(".default.", "."): parameter for name, parameter in trainable(model).items()}
    if saved.keys() != wanted.keys():
        odd = sorted(saved.keys() ^ wanted.keys())[0]
        raise StateError(f"{weights_file} does not belong to this model: {odd} is on one side only")
    with torch.no_grad():
        for name, parameter in wanted.items():
            if saved[name].shape != parameter.shape:
                raise StateError(
                    f"{weights_file}: {name} is {list(saved[name].shape)}, not {list(parameter.shape)}"
                )
            parameter.copy_(saved[name])

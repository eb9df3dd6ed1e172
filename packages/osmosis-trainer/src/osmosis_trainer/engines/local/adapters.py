"""LoRA weights as the sampler uses them: plain matrices by module, read from a model in training or from a PEFT folder."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from osmosis_trainer.errors import EngineError, UnsupportedModelError

_PREFIX = "base_model.model."


@dataclass(frozen=True)
class LoraWeights:
    """One immutable version of an adapter.

    `modules` maps a module's path in the base model to (A [r, in], B [out, r]); the scale alpha/r is already in B. Matrices
    of the fused expert parameters named in `fused` stand under PEFT's wrapper paths (see `learner.experts`). `key` identifies the version in prefix caches.
    """

    name: str
    version: int
    modules: dict[str, tuple[Tensor, Tensor]]
    fused: frozenset[str] = frozenset()
    compiled: dict[str, Any] = field(default_factory=dict, compare=False)

    @property
    def key(self) -> tuple[str | None, int]:
        """Name and version: equal keys mean equal weights."""
        return (self.name, self.version)


def snapshot(model: Any, name: str, version: int, adapter: str = "default") -> LoraWeights:
    """Copy the adapter out of a PEFT model, so that training can go on while it is sampled from."""
    modules: dict[str, tuple[Tensor, Tensor]] = {}
    for path, module in model.named_modules():
        if adapter in getattr(module, "lora_A", {}):
            a = module.lora_A[adapter].weight.detach()
            b = module.lora_B[adapter].weight.detach() * module.scaling[adapter]
            modules[path.removeprefix(_PREFIX)] = (a.clone(), b)
    fused = frozenset(model.peft_config[adapter].target_parameters or ())
    return LoraWeights(name, version, modules, frozenset(map(_last, fused)))


def _last(path: str) -> str:
    return path.rpartition(".")[2]


def read_folder(folder: Path, name: str, version: int, device: torch.device) -> LoraWeights:
    """Read a PEFT adapter folder. Raises EngineError when it is not a plain LoRA adapter in safetensors."""
    config_file, weights_file = folder / "adapter_config.json", folder / "adapter_model.safetensors"
    for file in (config_file, weights_file):
        if not file.is_file():
            raise EngineError(f"adapter {name!r}: {file} does not exist; give a folder in PEFT format")
    config = json.loads(config_file.read_text(encoding="utf-8"))
    _require_plain_lora(config, name, config_file)
    halves: dict[str, dict[str, Tensor]] = {}
    for key, tensor in load_file(weights_file, device=str(device)).items():
        path, _, half = key.removeprefix(_PREFIX).removesuffix(".weight").rpartition(".")
        if half not in ("lora_A", "lora_B"):
            raise EngineError(f"adapter {name!r}: {weights_file} holds {key}, which is not a LoRA matrix")
        halves.setdefault(path, {})[half] = tensor
    modules = {}
    for path, pair in halves.items():
        a, b = pair["lora_A"].float(), pair["lora_B"].float()
        modules[path] = (a, b * _scale(config, path, a.shape[0]))
    return LoraWeights(name, version, modules, frozenset(map(_last, config.get("target_parameters") or ())))


def _require_plain_lora(config: dict[str, Any], name: str, file: Path) -> None:
    if config.get("peft_type") != "LORA":
        raise UnsupportedModelError(
            f"adapter {name!r}: {file} says peft_type {config.get('peft_type')!r}; only LORA can be served"
        )
    if config.get("use_dora") or config.get("modules_to_save") or config.get("bias", "none") != "none":
        raise UnsupportedModelError(
            f"adapter {name!r}: {file} uses DoRA, biases or modules_to_save; only plain LoRA matrices can be served"
        )
    if config.get("target_parameters") and (config.get("rank_pattern") or config.get("alpha_pattern")):
        raise UnsupportedModelError(
            f"adapter {name!r}: {file} gives fused experts ranks of their own (rank_pattern or alpha_pattern); "
            "only one rank and alpha for all can be served"
        )


def _is_fused(config: dict[str, Any], path: str) -> bool:
    """Whether PEFT keeps matrices of fused experts at this path."""
    module = path.replace(".base_layer", "")
    owners = {target.rpartition(".")[0] for target in config.get("target_parameters") or ()}
    return any(module == owner or module.endswith(f".{owner}") for owner in owners)


def _scale(config: dict[str, Any], path: str, rank: int) -> float:
    alpha = config["lora_alpha"]
    if _is_fused(config, path):
        rank = config["r"]
    for pattern, value in (config.get("alpha_pattern") or {}).items():
        if path.endswith(pattern):
            alpha = value
    return float(alpha) / (math.sqrt(rank) if config.get("use_rslora") else rank)

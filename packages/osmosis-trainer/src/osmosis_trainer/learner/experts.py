"""Experts fused into one parameter, [experts, out, in] or [experts, in, out], and how PEFT puts LoRA on them.

PEFT wraps the module once per parameter, in the order they are defined: `experts.base_layer` is the wrapper of the first
and `experts` that of the last. Each wrapper's A and B hold the matrices of all experts.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def fused(model: Any) -> dict[str, list[str]]:
    """Paths of modules that hold fused experts, with the names of these parameters in the order they are defined."""
    found: dict[str, list[str]] = {}
    for name, parameter in model.named_parameters():
        path, _, last = name.rpartition(".")
        if parameter.dim() == 3 and "expert" in name:
            found.setdefault(path, []).append(last)
    return found


def wrapper_paths(path: str, parameters: list[str]) -> dict[str, str]:
    """Where PEFT keeps the matrices of each of a module's adapted `parameters`."""
    depth = len(parameters) - 1
    return {name: path + ".base_layer" * (depth - i) for i, name in enumerate(parameters)}


def adapted(weight: Tensor, a: Tensor, b: Tensor, transposed: bool) -> Tensor:
    """`weight` plus what LoRA adds: `a` [rank * experts, in], `b` [out, rank * experts], scale already in `b`.

    `transposed` weights are [experts, in, out]. The same layout and operation as in PEFT, so the numbers are the learner's.
    """
    count = weight.shape[0]
    down = a.reshape(count, -1, a.shape[-1])
    up = b.reshape(b.shape[0], -1, count).permute(2, 0, 1)
    left, right = (down.transpose(1, 2), up.transpose(1, 2)) if transposed else (up, down)
    return torch.baddbmm(weight, left.to(weight.dtype), right.to(weight.dtype))

"""Fused experts in a pass whose rows use different adapters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from osmosis_trainer.engines.local.adapters import LoraWeights
from osmosis_trainer.learner import experts

Groups = list[tuple[LoraWeights, Tensor | None]]


class AdaptedExperts(nn.Module):  # type: ignore[misc]
    """Stands in for a module of fused experts: each group of rows runs through weights with its own adapter added.

    Adapted weights live for one call: kept, they would take the experts' memory once more per adapter version.
    `running` tells the groups of the pass and how many rows it has.
    """

    def __init__(
        self, path: str, parameters: list[str], module: nn.Module, running: Callable[[], tuple[Groups, int]]
    ) -> None:
        super().__init__()
        self.inner = module
        self._path, self._parameters_adapted, self._running = path, parameters, running
        self._transposed = bool(getattr(module, "is_transposed", False))

    def forward(self, hidden: Tensor, *routing: Tensor) -> Any:
        """`hidden` and `routing` hold one entry per token, rows one after the other."""
        groups, count = self._running()
        groups = [(weights, rows) for weights, rows in groups if weights.fused]
        if len(groups) == 1 and groups[0][1] is None:
            return self._call(groups[0][0], hidden, *routing)
        output = self.inner(hidden, *routing)
        for weights, rows in groups:
            places = token_rows(rows, hidden.shape[0] // count)
            output[places] = self._call(weights, hidden[places], *(tensor[places] for tensor in routing))
        return output

    def _call(self, weights: LoraWeights, *inputs: Tensor) -> Any:
        chosen = [name for name in self._parameters_adapted if name in weights.fused]
        changed = {}
        for name, place in experts.wrapper_paths(self._path, chosen).items():
            a, b = weights.modules[place]
            changed[name] = experts.adapted(getattr(self.inner, name), a, b, self._transposed)
        return functional_call(self.inner, changed, inputs)


def token_rows(rows: Tensor | None, width: int) -> Tensor | None:
    """Indices of all tokens of the given batch rows when tokens are laid out row by row."""
    if rows is None or width == 1:
        return rows
    return (rows[:, None] * width + torch.arange(width, device=rows.device)).view(-1)

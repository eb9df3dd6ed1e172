"""Layers that keep a state instead of a column per token: linear attention and short convolutions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from osmosis_trainer.engines.local.cache import KeyValueCache
from osmosis_trainer.engines.local.forward import Pass
from osmosis_trainer.engines.local.modules import ModuleDecoder, PassCache


class RecurrentDecoder(ModuleDecoder):
    """Runs models that mix attention with recurrent layers.

    A state would take in padding as if it were text, so only rows with equally many new tokens share a pass, and idle
    rows are left out.
    """

    name = "recurrent"

    def _logits(self, batch: Pass, cache: KeyValueCache) -> Tensor:
        widths = (batch.columns != cache.bin).sum(1).tolist()
        begins = batch.columns[:, 0].tolist()
        alike: dict[tuple[int, bool], list[int]] = {}
        for row, (width, begin) in enumerate(zip(widths, begins, strict=True)):
            if width:
                alike.setdefault((width, begin == 0), []).append(row)
        logits: Tensor | None = None
        for (width, _), rows in alike.items():
            part = super()._logits(_some_rows(batch, rows, width), cache)
            if logits is None:
                logits = part.new_zeros((len(widths), part.shape[1]))
            logits[torch.tensor(rows, device=part.device)] = part
        assert logits is not None, "a pass has at least one new token"
        return logits

    def _pass_cache(self, batch: Pass, cache: KeyValueCache) -> _StatefulPassCache:
        return _StatefulPassCache(batch, cache)


def _some_rows(batch: Pass, rows: list[int], width: int) -> Pass:
    """The pass of `rows` alone, whose new tokens are all `width` first ones."""
    places = torch.tensor(rows, device=batch.ids.device)
    adapters = []
    for weights, used_by in batch.adapters:
        if used_by is None:
            adapters.append((weights, None))
            continue
        users = set(used_by.tolist())
        chosen = [place for place, row in enumerate(rows) if row in users]
        if chosen:
            adapters.append((weights, torch.tensor(chosen, device=places.device)))
    return Pass(
        ids=batch.ids[places, :width],
        columns=batch.columns[places, :width],
        slots=places if batch.slots is None else batch.slots[places],
        span=batch.span,
        last=torch.full((len(rows),), width - 1, device=places.device),
        adapters=adapters,
    )


class _StatefulPassCache(PassCache):
    """Hands each recurrent layer the states of the pass's slots and keeps what it makes of them.

    Models change a convolution's state in place while they decode, so states are written back when the pass is over.
    """

    def __init__(self, batch: Pass, cache: KeyValueCache) -> None:
        super().__init__(batch, cache)
        self._fresh = bool((batch.columns[:, 0] == 0).all())
        self._states: dict[tuple[str, int, int], Tensor] = {}

    def get_conv_state(self, layer_idx: int, state_idx: int = 0) -> Tensor | None:
        """States [n, channels, kernel] before this pass; None at the beginning of a text."""
        return self._get(("conv", layer_idx, state_idx))

    def get_recurrent_state(self, layer_idx: int, state_idx: int = 0) -> Tensor | None:
        """States [n, ...] before this pass; None at the beginning of a text."""
        return self._get(("recurrent", layer_idx, state_idx))

    def _get(self, key: tuple[str, int, int]) -> Tensor | None:
        if self._fresh:
            return None
        if key not in self._states:
            self._states[key] = self._cache.states[key][self._slots]
        return self._states[key]

    def update_conv_state(
        self, conv_states: Tensor, layer_idx: int, state_idx: int = 0, *, conv_kernel_size: int, **_: Any
    ) -> Tensor:
        """Keep the last `conv_kernel_size` inputs; returns the new inputs after those before."""
        key = ("conv", layer_idx, state_idx)
        before = self._get(key)
        if before is None:
            missing = max(0, conv_kernel_size - conv_states.shape[-1])
            inputs = functional.pad(conv_states, (missing, 0))
        else:
            inputs = torch.cat([before, conv_states], dim=-1)
        self._states[key] = inputs[..., -conv_kernel_size:]
        return inputs

    def update_recurrent_state(
        self, recurrent_states: Tensor, layer_idx: int, state_idx: int = 0, **_: Any
    ) -> Tensor:
        """Keep the states after this pass."""
        self._states["recurrent", layer_idx, state_idx] = recurrent_states
        return recurrent_states

    def is_recording_past(self, layer_idx: int) -> bool:
        """States of earlier tokens are not kept."""
        return False

    def store(self) -> None:
        """Write the states back to their slots."""
        for key, states in self._states.items():
            self._cache.store_states(key, self._slots, states)

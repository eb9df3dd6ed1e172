"""Any transformers causal model with ordinary attention, run through its own modules.

Slower than the fused decoder, but it follows whatever the model's code does between the attention calls. Adapters are
added by hooks on the linear modules and in place of fused experts, so several can share one pass and training is not
disturbed.
"""

from __future__ import annotations

import copy
import inspect
from typing import Any

import torch
from torch import Tensor, nn

from osmosis_trainer.engines.local.cache import KeyValueCache
from osmosis_trainer.engines.local.expert_adapters import AdaptedExperts, Groups, token_rows
from osmosis_trainer.engines.local.forward import Pass
from osmosis_trainer.learner import experts
from osmosis_trainer.learner.attention_masks import attention_mask


class ModuleDecoder:
    """Runs passes through a twin of the model: its own modules, the same parameters and config."""

    name = "modules"

    def __init__(self, model: Any) -> None:
        shared: dict[int, Any] = {id(model.config): model.config}
        shared |= {id(p): p for p in model.parameters()} | {id(b): b for b in model.buffers()}
        self._model = copy.deepcopy(model, shared).eval()
        forward = inspect.signature(self._model.forward).parameters
        self._cache_argument = "cache" if "cache" in forward else "past_key_values"
        self._groups: Groups = []
        self._rows = 0
        for path, module in self._model.named_modules():
            if isinstance(module, nn.Linear):
                module.register_forward_hook(self._hook(path))
        for path, parameters in experts.fused(self._model).items():
            parent, _, name = path.rpartition(".")
            module = self._model.get_submodule(path)
            stand_in = AdaptedExperts(path, parameters, module, lambda: (self._groups, self._rows))
            setattr(self._model.get_submodule(parent), name, stand_in)

    def _hook(self, path: str) -> Any:
        def add(_module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
            for weights, rows in self._groups:
                pair = weights.modules.get(path)
                if pair is None:
                    continue
                down, up = (matrix.to(output.dtype) for matrix in pair)
                if rows is None:
                    output = output + (inputs[0] @ down.T) @ up.T
                else:
                    # Layers inside a mixture of experts get tokens row after row instead of [n, w].
                    places = token_rows(rows, inputs[0].shape[0] // self._rows)
                    output = output.index_add(0, places, (inputs[0][places] @ down.T) @ up.T)
            return output

        return add

    def logits(self, batch: Pass, cache: KeyValueCache) -> Tensor:
        """See `Decoder.logits`."""
        with torch.inference_mode():
            return self._logits(batch, cache)

    def _logits(self, batch: Pass, cache: KeyValueCache) -> Tensor:
        n, _ = batch.ids.shape
        device = batch.ids.device
        self._rows = n
        self._groups = [(weights, rows) for weights, rows in batch.adapters if weights is not None]
        keys = torch.arange(batch.span, device=device)
        past = keys <= batch.columns[:, None, :, None]
        mask = attention_mask(self._model.config, past, batch.columns, keys[None], self._model.dtype)
        pass_cache = self._pass_cache(batch, cache)
        arguments: dict[str, Any] = {self._cache_argument: pass_cache}
        hidden = self._model(
            input_ids=batch.ids, position_ids=batch.columns, attention_mask=mask, use_cache=True, **arguments
        )
        pass_cache.store()
        logits: Tensor = hidden.logits
        last = torch.zeros(n, dtype=torch.long, device=device) if batch.last is None else batch.last
        return logits[torch.arange(n, device=device), last]

    def _pass_cache(self, batch: Pass, cache: KeyValueCache) -> PassCache:
        return PassCache(batch, cache)


class PassCache:
    """Speaks the interface of transformers' caches for one pass."""

    is_compileable = False

    def __init__(self, batch: Pass, cache: KeyValueCache) -> None:
        self._cache, self._span, self._dense = cache, batch.span, batch.slots is None
        self._rows = batch.ids.shape[0]
        self._slots = (
            torch.arange(self._rows, device=batch.ids.device) if batch.slots is None else batch.slots
        )
        self._where = (self._slots[:, None].expand(*batch.ids.shape), slice(None), batch.columns)

    def update(self, key: Tensor, value: Tensor, layer: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Store the new keys and values [n, kv_heads, w, d] and return all that can be attended to."""
        keys, values = self._cache.keys[layer], self._cache.values[layer]
        keys[self._where] = key.transpose(1, 2)
        values[self._where] = value.transpose(1, 2)
        if self._dense:
            return keys[: self._rows, :, : self._span], values[: self._rows, :, : self._span]
        return keys[self._slots, :, : self._span], values[self._slots, :, : self._span]

    def get_seq_length(self, *_: Any) -> int:
        """Positions are always given, so nothing asks for a length that matters."""
        return 0

    def store(self) -> None:
        """The pass is over; keys and values are in place already."""

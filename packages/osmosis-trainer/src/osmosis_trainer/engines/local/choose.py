"""Which decoder runs a model, decided by trying it when the engine loads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from osmosis_trainer.engines.local.cache import KeyValueCache
from osmosis_trainer.engines.local.forward import Decoder, Pass
from osmosis_trainer.engines.local.fused import FusedDecoder, supports
from osmosis_trainer.engines.local.modules import ModuleDecoder
from osmosis_trainer.engines.local.recurrent import RecurrentDecoder
from osmosis_trainer.errors import UnsupportedModelError
from osmosis_trainer.learner.attention_masks import sliding_window
from osmosis_trainer.learner.layer_kinds import ATTENTION, RECURRENT, is_recurrent, layer_kinds

# Largest difference of log-probabilities to the model's own forward, by parameter type, where logits are small.
_TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-9, torch.bfloat16: 0.5, torch.float16: 0.1}
# Rounding grows with the logits: a model of 135M parameters whose logits reach 36 is off by 4e-5 to itself in another order.
_SMALL_LOGIT = 8.0
_SHORT_WINDOW = 5


def build_decoder(model: Any, max_context: int) -> Decoder:
    """The fastest decoder that reproduces the model's own log-probabilities.

    Raises UnsupportedModelError when none does.
    """
    config = model.config
    _require_known_layers(config)
    problems = []
    if supports(config, max_context):
        fused = FusedDecoder(model, max_context)
        gap = decoder_gap(fused, model)
        if gap <= _TOLERANCE[model.dtype]:
            return fused
        problems.append(f"fused decoder off by {gap:.2g} nats")
    try:
        modules = RecurrentDecoder(model) if is_recurrent(config) else ModuleDecoder(model)
        gap = decoder_gap(modules, model, _SHORT_WINDOW)
    except (TypeError, ValueError, RuntimeError, IndexError, AttributeError, KeyError) as error:
        # Whatever the model's code does with a cache it does not know; the reason is reported, not hidden.
        problems.append(f"{type(error).__name__}: {error}")
    else:
        if gap <= _TOLERANCE[model.dtype]:
            return modules
        problems.append(f"{modules.name} decoder off by {gap:.2g} nats")
    raise UnsupportedModelError(
        f"a model of type {config.model_type!r} cannot be sampled exactly by the local engine ({'; '.join(problems)}); "
        "use a model of a family that docs/engine.md lists, such as Qwen3, Qwen3.5, Llama or Mistral"
    )


def new_cache(
    config: Any, slots: int, max_columns: int, dtype: torch.dtype, device: torch.device
) -> KeyValueCache:
    """An empty cache with the model's shapes."""
    heads = config.num_attention_heads
    return KeyValueCache(
        layers=[layer for layer, kind in enumerate(layer_kinds(config)) if kind not in RECURRENT],
        slots=slots,
        kv_heads=getattr(config, "num_key_value_heads", None) or heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
        max_columns=max_columns,
        dtype=dtype,
        device=device,
        recurrent=is_recurrent(config),
    )


def _require_known_layers(config: Any) -> None:
    if not getattr(config, "num_attention_heads", None):
        raise UnsupportedModelError(
            f"a model of type {config.model_type!r} has no attention heads; "
            "the local engine samples models with ordinary attention only"
        )
    kinds = set(layer_kinds(config)) - ATTENTION - RECURRENT
    if kinds:
        raise UnsupportedModelError(
            f"a model of type {config.model_type!r} has {', '.join(sorted(kinds))} layers; "
            "the local engine samples models with ordinary attention, linear attention and short convolutions only"
        )


def decoder_gap(decoder: Decoder, model: Any, window: int | None = None) -> float:
    """Largest difference of log-probabilities between a decoder and the model's own full forward, over what its logits
    exceed `_SMALL_LOGIT` by.

    Two rows of different length, a reused prefix and single-token passes: every path the sampler takes. `window`
    shortens the model's sliding windows meanwhile, so that these few tokens reach beyond them.
    """
    with torch.inference_mode(), _windows(model.config, window):
        return _decoder_gap(decoder, model)


@contextmanager
def _windows(config: Any, short: int | None) -> Iterator[None]:
    """Sliding windows, where the model has them, are of `short` tokens inside the block."""
    window = sliding_window(config)
    if short is None or window is None:
        yield
        return
    config.sliding_window = min(window, short)
    try:
        yield
    finally:
        config.sliding_window = window


def _decoder_gap(decoder: Decoder, model: Any) -> float:
    config, device = model.config, model.device
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, config.vocab_size, (2, 14), generator=generator).to(device)
    whole = model(input_ids=ids, use_cache=False).logits.float()
    reference = torch.log_softmax(whole, -1)
    cache = new_cache(config, 3, 32, model.dtype, device)
    lengths = (11, 7)
    columns = torch.arange(11, device=device).repeat(2, 1)
    columns[1, 7:] = cache.bin
    last = torch.tensor([length - 1 for length in lengths], device=device)
    slots = torch.tensor([2, 1], device=device)
    got = [decoder.logits(Pass(ids[:, :11], columns, slots, 11, last, []), cache)]
    want = [torch.stack([reference[0, 10], reference[1, 6]])]
    cache.copy_prefix(2, 0, 11)
    # Slots 0 and 1, dense: row 0 continues the copy of the first sequence, row 1 the second.
    for step in range(2):
        columns = torch.tensor([[11 + step], [7 + step]], device=device)
        new = torch.stack([ids[0, 11 + step], ids[1, 7 + step]])[:, None]
        got.append(decoder.logits(Pass(new, columns, None, 12 + step, None, []), cache))
        want.append(torch.stack([reference[0, 11 + step], reference[1, 7 + step]]))
    difference = torch.log_softmax(torch.cat(got).float(), -1) - torch.cat(want)
    return float(difference.abs().max()) / max(1.0, float(whole.abs().max()) / _SMALL_LOGIT)

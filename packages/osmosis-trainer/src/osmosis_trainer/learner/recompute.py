"""Activation checkpointing: layers are computed again in the backward pass, so that only their inputs are kept.

The sampler runs the same modules in another thread and must not notice, so layers are wrapped once and the wrapper looks at a
variable of its thread; the switches of transformers act on the whole model (and need training mode).
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint

from osmosis_trainer.errors import UnsupportedModelError

_active = threading.local()


def decoder_layers(decoder: nn.Module) -> nn.ModuleList:
    """The layers of a decoder (`model.base_model` of a causal model). Raises UnsupportedModelError without layers."""
    layers = getattr(decoder, "layers", None)
    if not isinstance(layers, nn.ModuleList) or not len(layers):
        raise UnsupportedModelError(
            f"{type(decoder).__name__} has no list of layers, so they can neither be computed again in the backward pass "
            "nor be spread over processes; set recompute to false, and [advanced] split_sharding to none"
        )
    return layers


def wrap_layers(decoder: nn.Module) -> None:
    """Prepare the layers of a decoder. Raises UnsupportedModelError without layers."""
    for layer in decoder_layers(decoder):
        layer.forward = _recomputed(layer.forward)


def _recomputed(forward: Any) -> Any:
    @functools.wraps(forward)
    def run(*arguments: Any, **named: Any) -> Any:
        if not getattr(_active, "on", False):
            return forward(*arguments, **named)
        return checkpoint(forward, *arguments, use_reentrant=False, **named)

    return run


@contextmanager
def recomputing(on: bool) -> Iterator[None]:
    """Inside the block wrapped layers of this thread keep their inputs only."""
    before = getattr(_active, "on", False)
    _active.on = on
    try:
        yield
    finally:
        _active.on = before

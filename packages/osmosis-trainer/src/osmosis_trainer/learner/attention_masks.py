"""Who may attend to whom, in the shape a model's attention layers take."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from osmosis_trainer.learner.layer_kinds import RECURRENT


def sliding_window(config: Any) -> int | None:
    """How many tokens, itself included, a token of a sliding layer sees; None when every layer sees the whole past."""
    window: int | None = getattr(config, "sliding_window", None)
    if not window or not getattr(config, "use_sliding_window", True):
        return None
    kinds = getattr(config, "layer_types", None)
    return window if kinds is None or "sliding_attention" in kinds else None


def attention_mask(config: Any, visible: Tensor, queries: Tensor, keys: Tensor, dtype: torch.dtype) -> Any:
    """The mask to hand to a model, or one per kind of layer where its layers differ.

    `visible` [n, 1, w, s] bool says which past is a token's own; `queries` [n, w] and `keys` [n or 1, s] are positions,
    from which sliding layers take their windows. Eager attention adds its mask to the scores, the others select by it.
    """
    window = sliding_window(config)
    near = visible
    if window is not None:
        near = visible & ((queries[:, :, None] - keys[:, None, :]) < window)[:, None]
    if config._attn_implementation == "eager":
        visible, near = (_additive(mask, dtype) for mask in (visible, near))
    kinds = getattr(config, "layer_types", None)
    if not kinds:
        return near
    masks = {kind: near if kind == "sliding_attention" else visible for kind in kinds}
    return {kind: None if kind in RECURRENT else mask for kind, mask in masks.items()}


def _additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    closed = torch.zeros(mask.shape, dtype=dtype, device=mask.device)
    return closed.masked_fill_(~mask, torch.finfo(dtype).min)

"""What models do to their logits after the output head."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def adjust_logits(config: Any, logits: Tensor) -> Tensor:
    """Apply the constants of the config: `logits_scaling` (Granite) divides, `logit_scale` (Cohere) multiplies,
    `final_logit_softcapping` (Gemma 2) bends into (-cap, cap) by tanh."""
    divisor = getattr(config, "logits_scaling", None)
    if divisor:
        logits = logits / divisor
    factor = getattr(config, "logit_scale", None)
    if factor:
        logits = logits * factor
    cap = getattr(config, "final_logit_softcapping", None)
    if cap:
        logits = torch.tanh(logits / cap) * cap
    return logits

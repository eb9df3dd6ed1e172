"""Correcting for a sampler that is another program than the learner.

The same weights give slightly different probabilities in the kernels of a server and in those of the learner. Every token is
weighted by min(p_learner / p_sampler, cap) (truncated importance sampling, Yao et al. 2025, "Your efficient RL framework
secretly brings you off-policy RL training"), and a row whose tokens are on average (geometric mean) off by more than the
cap, up or down, is left out: there the two do not mean the same policy. Ratio and clip range of the loss are then relative to
the learner, not to the sampler (decoupled objective, arXiv:2110.00641).

Both are compared at the policy that sampled, as in the formula of Yao et al., also when the policy that learns has moved on
since: the learner's numbers for it were kept then (`learner.anchor`), and how far the policy has moved is the business of the ratio
and its clip range, as with an embedded sampler. Without such numbers the learner at the start of the step stands in.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(slots=True)
class Correction:
    """Per token [n]: the `weight`, 0 in rows left out; whether it was `truncated`; whether its row is `masked`; the `raw`
    ratio of learner to sampler."""

    weight: Tensor
    truncated: Tensor
    masked: Tensor
    raw: Tensor


def correction(log_ratio: Tensor, row: Tensor, row_tokens: Tensor, cap: float) -> Correction:
    """The correction for log(p_learner / p_sampler) [n], in nats, without gradient. `row` numbers rows from 0."""
    sums = log_ratio.new_zeros(int(row.max()) + 1).index_add(0, row, log_ratio)
    masked = (sums[row] / row_tokens).abs() > math.log(cap)
    raw = log_ratio.exp()
    truncated = (raw > cap) & ~masked
    weight = torch.where(masked, torch.zeros_like(raw), raw.clamp(max=cap))
    return Correction(weight, truncated, masked, raw)

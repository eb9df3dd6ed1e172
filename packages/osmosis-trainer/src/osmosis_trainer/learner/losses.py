"""The policy-gradient losses, per token, with the weights that make them a mean.

Notation: r = exp(new - old) is the ratio of a token's probability under the policy being trained to the one under the
sampler; A the advantage; `lo`, `hi` the clip range; T the trained tokens of the whole optimizer step, R its rows, |o| the
trained tokens of a row. Every loss is a sum of token terms times a weight that is fixed by the step, not by the
micro-batch, so gradient accumulation cannot change it.

| name    | token term                                                        | weight      | source |
|---------|-------------------------------------------------------------------|-------------|--------|
| clip    | -min(r A, clip(r, 1-lo, 1+hi) A); for A < 0 at least `cap` A       | 1/T         | PPO (1707.06347), upper cap: dual clip (1912.09729) |
| is      | -r A                                                              | 1/T         | importance-sampled REINFORCE, no clipping |
| grpo    | -min(r A, clip(r, 1-lo, 1+hi) A)                                   | 1/(R |o|)   | DeepSeekMath (2402.03300) |
| dr_grpo | the same                                                          | 1/(R L)     | Dr. GRPO (2503.20783), L = max_completion_tokens |
| dapo    | the same                                                          | 1/T         | DAPO (2503.14476) |
| gspo    | the same with r = exp(mean of new - old over the row)              | 1/(R |o|)   | GSPO (2507.18071) |
| cispo   | -stop_gradient(min(r, ratio_cap)) A new                            | 1/T         | MiniMax-M1 (2506.13585) |

A difference new - old within `ROUNDING` is what the order of additions in a forward pass leaves; it counts as none (r = 1 exactly,
the gradient unchanged). Otherwise the last digits of the sampler, which depend on which requests shared a pass, would reach
the weights, and a run could not be repeated bitwise.

With `mismatch_cap` the denominator of r is not the sampler but the learner with the policy that sampled, and every term (but not
the KL) is weighted by how far these two are apart: see `osmosis_trainer.learner.mismatch`.

With `kl_coef` every term gains kl_coef * (exp(d) - d - 1), d = reference - new: the non-negative estimator of the KL to the
reference ("k3", Schulman 2020, joschu.net/blog/kl-approx.html).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from osmosis_trainer.engines.protocol import Objective
from osmosis_trainer.errors import ConfigError
from osmosis_trainer.learner.mismatch import correction

# Largest difference of log-probabilities, in nats, that is taken for rounding (float32: measured up to 4e-5,
# with a real model of 135M parameters).
ROUNDING = 1e-4


@dataclass(frozen=True, slots=True)
class StepSize:
    """Trained tokens and rows of the whole optimizer step."""

    tokens: int
    rows: int


@dataclass(slots=True)
class TokenBatch:
    """The trained tokens of some whole rows, flat. All tensors [n]; `row` numbers the rows from 0.

    `anchor`: the learner's log-probabilities under the policy that sampled; None where that is the policy now.
    """

    new: Tensor
    old: Tensor
    advantage: Tensor
    row: Tensor
    row_tokens: Tensor  # per token: trained tokens of its row
    reference: Tensor | None = None
    anchor: Tensor | None = None


@dataclass(slots=True)
class LossTerms:
    """`total` carries the gradient; the rest are detached sums over the batch's tokens. `truncated` and `masked` count
    what `mismatch_cap` did."""

    total: Tensor
    clipped: Tensor
    ratio_max: Tensor
    kl: Tensor
    truncated: Tensor
    masked: Tensor


def policy_loss(batch: TokenBatch, objective: Objective, step: StepSize) -> LossTerms:
    """The objective's loss over one micro-batch, weighted as part of the whole step. Raises ConfigError on a missing knob."""
    corrected = None
    if objective.mismatch_cap is None:
        log_ratio = _up_to_rounding(batch.new, batch.old)
    else:
        start = batch.new.detach() if batch.anchor is None else batch.anchor
        apart = _up_to_rounding(start, batch.old)
        corrected = correction(apart, batch.row, batch.row_tokens, objective.mismatch_cap)
        log_ratio = _up_to_rounding(batch.new, start)
    ratio_max = (log_ratio.detach().exp() * (1.0 if corrected is None else corrected.raw)).max()
    if objective.loss == "gspo":
        log_ratio = _row_mean(log_ratio, batch)
    ratio = log_ratio.exp()
    terms, clipped = _token_terms(ratio, batch, objective)
    if corrected is not None:
        terms = terms * corrected.weight
    kl = torch.zeros_like(ratio)
    if batch.reference is not None:
        difference = batch.reference - batch.new
        kl = difference.exp() - difference - 1.0
        terms = terms + objective.kl_coef * kl
    total = (terms * token_weights(batch.row_tokens, objective, step)).sum()
    none = ratio.new_zeros(())
    return LossTerms(
        total,
        clipped.sum(),
        ratio_max,
        kl.detach().sum(),
        none if corrected is None else corrected.truncated.sum(),
        none if corrected is None else corrected.masked.sum(),
    )


def _up_to_rounding(new: Tensor, old: Tensor) -> Tensor:
    """new - old, 0 where it is rounding; the gradient is that of `new` in both cases."""
    gap = new - old
    return torch.where(gap.detach().abs() <= ROUNDING, new - new.detach(), gap)


def _token_terms(ratio: Tensor, batch: TokenBatch, objective: Objective) -> tuple[Tensor, Tensor]:
    """Loss of each token, and which tokens lost their gradient to a clip."""
    advantage = batch.advantage
    if objective.loss == "is":
        return -ratio * advantage, torch.zeros_like(ratio, dtype=torch.bool)
    if objective.loss == "cispo":
        weight = ratio.detach().clamp(max=objective.ratio_cap)
        return -weight * advantage * batch.new, ratio.detach() > objective.ratio_cap
    bounded = ratio.clamp(1.0 - objective.clip_low, 1.0 + objective.clip_high)
    surrogate = torch.minimum(ratio * advantage, bounded * advantage)
    clipped = (bounded * advantage < ratio * advantage).detach()
    if objective.loss == "clip" and objective.negative_cap is not None:
        floor = objective.negative_cap * advantage
        capped = (advantage < 0) & (surrogate < floor)
        surrogate = torch.where(capped, floor, surrogate)
        clipped = clipped | capped
    return -surrogate, clipped


def token_weights(row_tokens: Tensor, objective: Objective, step: StepSize) -> Tensor:
    """Each token's share in the step's mean."""
    if objective.loss in ("grpo", "gspo"):
        return 1.0 / (step.rows * row_tokens)
    if objective.loss == "dr_grpo":
        if not objective.max_completion_tokens:
            raise ConfigError(
                "loss dr_grpo divides by a constant: set max_completion_tokens to the sampling limit"
            )
        return torch.full_like(row_tokens, 1.0 / (step.rows * objective.max_completion_tokens))
    return torch.full_like(row_tokens, 1.0 / step.tokens)


def _row_mean(values: Tensor, batch: TokenBatch) -> Tensor:
    """Replace each token's value by the mean over its row."""
    rows = int(batch.row.max()) + 1
    sums = values.new_zeros(rows).index_add(0, batch.row, values)
    return sums[batch.row] / batch.row_tokens

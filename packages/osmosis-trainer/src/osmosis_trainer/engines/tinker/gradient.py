"""Our objective on a server that knows other losses: its value, metrics and derivatives are computed here.

The server gives the log-probability of every token; `policy_loss` turns them into the loss of the step; automatic
differentiation gives its derivative with respect to each. The server then follows exactly that derivative, whatever
losses it has of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from osmosis_trainer.engines.protocol import Objective, TrainingRow
from osmosis_trainer.errors import NonFiniteLossError
from osmosis_trainer.learner.losses import StepSize, TokenBatch, policy_loss


@dataclass(frozen=True, slots=True)
class WeightedRow:
    """A row on its way to the server: for each predicted token its log-probability now and the loss's derivative."""

    token_ids: list[int]
    logprobs: list[float]
    derivatives: list[float]

    @property
    def positions(self) -> int:
        """Predicted tokens of the row, trained or not."""
        return len(self.logprobs)


def differentiate(
    rows: Sequence[TrainingRow],
    new: Sequence[Sequence[float]],
    reference: Sequence[Sequence[float]] | None,
    objective: Objective,
    size: StepSize,
) -> tuple[list[WeightedRow], dict[str, float]]:
    """The objective's derivative at every trained token, and the metrics of docs/engine.md.

    `new` and `reference` hold one log-probability per predicted token of each row. Raises NonFiniteLossError.
    """
    masks = [np.asarray(row.mask[1:], dtype=bool) for row in rows]

    def trained(values: Sequence[Sequence[float]]) -> Tensor:
        parts = [np.asarray(part, np.float64)[mask] for part, mask in zip(values, masks, strict=True)]
        return torch.from_numpy(np.concatenate(parts))

    counts = torch.tensor([int(mask.sum()) for mask in masks])
    numbers = torch.repeat_interleave(torch.arange(len(rows)), counts)
    now = trained(new).requires_grad_()
    batch = TokenBatch(
        new=now,
        old=trained([row.logprobs[1:] for row in rows]),
        advantage=torch.tensor([row.advantage for row in rows], dtype=torch.float64)[numbers],
        row=numbers,
        row_tokens=counts.double()[numbers],
        reference=None if reference is None else trained(reference),
        anchor=trained([row.anchors[1:] for row in rows if row.anchors]) if rows[0].anchors else None,
    )
    terms = policy_loss(batch, objective, size)
    value = float(terms.total.detach())
    terms.total.backward()
    assert now.grad is not None
    if not math.isfinite(value) or not bool(now.grad.isfinite().all()):
        raise NonFiniteLossError(
            f"the loss of {len(rows)} rows is {value}; the step's gradient was dropped. "
            "A lower learning rate or a tighter clip usually helps"
        )
    found = now.detach()
    gap = found - batch.old
    moved = gap if batch.anchor is None else found - batch.anchor
    metrics = {
        "loss": value,
        "tokens": float(len(found)),
        # The server gives no entropies; minus the log-probability of a sampled token estimates them without bias.
        "entropy": float(-(found * gap.exp()).mean()),
        "kl": float(terms.kl) / len(found),
        "mismatch_kl": float((moved.exp() - moved - 1.0).mean()),
        "mismatch_truncated": float(terms.truncated) / len(found),
        "mismatch_masked": float(terms.masked) / len(found),
        "clip_ratio": float(terms.clipped) / len(found),
        "ratio_max": float(terms.ratio_max),
        "logprob_gap_max": float(moved.abs().max()),
    }
    parts = now.grad.split(counts.tolist())
    return [_weighted(*each) for each in zip(rows, new, masks, parts, strict=True)], metrics


def _weighted(
    row: TrainingRow, new: Sequence[float], mask: np.ndarray[tuple[int], np.dtype[np.bool_]], part: Tensor
) -> WeightedRow:
    derivatives = np.zeros(len(mask))
    derivatives[mask] = part.numpy()
    return WeightedRow(list(row.token_ids), list(new), derivatives.tolist())

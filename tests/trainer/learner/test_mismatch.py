"""The correction for an external sampler, against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from osmosis_trainer.engines.protocol import Objective
from osmosis_trainer.learner.losses import StepSize, TokenBatch, policy_loss


def loss(
    ratios: list[list[float]],
    advantages: list[float],
    objective: Objective,
    moved: list[list[float]] | None = None,
) -> tuple[torch.Tensor, object]:
    """Gradient by token, and the terms, for rows whose tokens have these ratios of learner to sampler.

    `moved`: ratios of the learner now to the learner with the policy that sampled, where that is an older one.
    """
    new = torch.full((sum(map(len, ratios)),), -1.0, requires_grad=True)
    flat = torch.tensor([ratio for row in ratios for ratio in row])
    sizes = [len(row) for row in ratios]
    row = torch.repeat_interleave(torch.arange(len(ratios)), torch.tensor(sizes))
    batch = TokenBatch(
        new,
        new.detach() - flat.log(),
        torch.tensor(advantages)[row],
        row,
        torch.tensor(sizes, dtype=torch.float32)[row],
    )
    if moved is not None:
        since = torch.tensor([ratio for part in moved for ratio in part])
        batch.anchor = new.detach() - since.log()
        batch.old = batch.anchor - flat.log()
    terms = policy_loss(batch, objective, StepSize(tokens=len(flat), rows=len(ratios)))
    terms.total.backward()
    assert new.grad is not None
    return new.grad, terms


def test_weights_are_truncated_and_far_rows_left_out() -> None:
    ratios = [[1.0, 0.5, 3.0], [8.0, 1.0], [0.1, 0.5], [1.9]]
    gradient, terms = loss(ratios, [1.0, 1.0, -1.0, -2.0], Objective(mismatch_cap=2.0))
    # Geometric means: 1.5^(1/3), 8^(1/2) = 2.8 (out), 0.05^(1/2) = 0.22 (out), 1.9.
    want = [-1.0, -0.5, -2.0, 0.0, 0.0, 0.0, 0.0, 2 * 1.9]
    assert gradient.tolist() == pytest.approx([value / 8 for value in want], rel=1e-5)
    assert float(terms.total.detach()) == pytest.approx(sum(want) / 8, rel=1e-5)
    assert (int(terms.truncated), int(terms.masked), int(terms.clipped)) == (1, 4, 0)
    assert float(terms.ratio_max) == pytest.approx(8.0)


def test_without_a_difference_it_changes_nothing() -> None:
    ratios = [[1.0, 1.0], [math.exp(1e-5), math.exp(-1e-5)]]
    plain, _ = loss(ratios, [1.0, -0.5], Objective())
    corrected, terms = loss(ratios, [1.0, -0.5], Objective(mismatch_cap=2.0))
    assert torch.equal(plain, corrected)
    assert int(terms.truncated) == int(terms.masked) == 0


@pytest.mark.parametrize("name", ["is", "grpo", "dr_grpo", "dapo", "gspo", "cispo"])
def test_every_loss_is_weighted(name: str) -> None:
    objective = {"max_completion_tokens": 4} if name == "dr_grpo" else {}
    far, _ = loss([[1.0, 1.0], [1.5, 1.5]], [1.0, 1.0], Objective(name, mismatch_cap=2.0, **objective))
    near, _ = loss([[1.0, 1.0], [1.0, 1.0]], [1.0, 1.0], Objective(name, mismatch_cap=2.0, **objective))
    assert far.tolist() == pytest.approx((near * torch.tensor([1.0, 1.0, 1.5, 1.5])).tolist(), rel=1e-5)


def test_a_policy_that_moved_is_the_business_of_the_clip_range_not_of_the_mask() -> None:
    # The sampler was right about the policy it sampled; since then the policy made row 0 eight times as likely.
    ratios, moved, advantages = [[1.0, 1.0], [1.0]], [[8.0, 8.0], [0.9]], [1.0, -1.0]
    plain, wanted = loss([[8.0, 8.0], [0.9]], advantages, Objective())
    stale, terms = loss(ratios, advantages, Objective(mismatch_cap=2.0), moved)
    assert stale.tolist() == pytest.approx(plain.tolist(), rel=1e-5)
    assert plain.tolist() == pytest.approx([0.0, 0.0, 0.9 / 3], rel=1e-5)
    assert (int(terms.masked), int(terms.truncated), int(terms.clipped)) == (0, 0, 2)
    assert float(terms.ratio_max) == pytest.approx(float(wanted.ratio_max)) == pytest.approx(8.0)
    # Without the numbers of then, all of the difference counts as the sampler's.
    _, terms = loss([[8.0, 8.0], [0.9]], advantages, Objective(mismatch_cap=2.0))
    assert int(terms.masked) == 2


def test_old_rows_of_a_sampler_that_differs_are_weighted_and_clipped() -> None:
    ratios, moved = [[1.5, 3.0], [0.5]], [[1.1, 1.2], [0.7]]
    gradient, terms = loss(ratios, [1.0, -1.0], Objective(mismatch_cap=2.5), moved)
    # Weight times ratio: 1.5 x 1.1, 2.5 x 1.2 (truncated); with A < 0 a ratio below 1 - 0.2 is clipped.
    assert gradient.tolist() == pytest.approx([-1.65 / 3, -3.0 / 3, 0.0], rel=1e-5)
    assert (int(terms.masked), int(terms.truncated), int(terms.clipped)) == (0, 1, 1)
    assert float(terms.ratio_max) == pytest.approx(3.6)

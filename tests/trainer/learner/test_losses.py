"""Every loss against a reference written from its definition, token by token, and against TRL's."""

from __future__ import annotations

import math
from collections import defaultdict
from types import SimpleNamespace

import pytest
import torch

from osmosis_trainer.engines.protocol import Objective
from osmosis_trainer.errors import ConfigError
from osmosis_trainer.learner.losses import StepSize, TokenBatch, policy_loss

OBJECTIVES = [
    Objective("clip"),
    Objective("clip", negative_cap=None),
    Objective("clip", kl_coef=0.1),
    Objective("is"),
    Objective("grpo", clip_low=0.2, clip_high=0.2),
    Objective("grpo", kl_coef=0.04),
    Objective("dr_grpo", max_completion_tokens=16),
    Objective("dapo"),
    Objective("gspo", clip_low=0.1, clip_high=0.15),
    Objective("cispo"),
    Objective("cispo", ratio_cap=1.2),
]
LENGTHS = (5, 1, 9, 3, 12)


def name(objective: Objective) -> str:
    return f"{objective.loss}-cap{objective.negative_cap}-kl{objective.kl_coef}-ratio{objective.ratio_cap}"


@pytest.fixture
def batch() -> TokenBatch:
    generator = torch.Generator().manual_seed(1)
    count = sum(LENGTHS)
    new = -torch.rand(count, generator=generator, dtype=torch.float64) * 3 - 0.1
    old = new + 0.8 * torch.randn(count, generator=generator, dtype=torch.float64)
    row = torch.repeat_interleave(torch.arange(len(LENGTHS)), torch.tensor(LENGTHS))
    return TokenBatch(
        new=new.requires_grad_(),
        old=old,
        advantage=torch.tensor([1.0, -0.5, -2.0, 0.3, 0.9], dtype=torch.float64)[row],
        row=row,
        row_tokens=torch.tensor(LENGTHS, dtype=torch.float64)[row],
        reference=new.detach() + 0.3 * torch.randn(count, generator=generator, dtype=torch.float64),
    )


def reference_loss(objective: Objective, batch: TokenBatch, new: list[float], step: StepSize) -> float:
    """The loss from its definition, one number at a time. cispo's weights are held at the batch's own values."""
    members = defaultdict(list)
    for i, row in enumerate(batch.row.tolist()):
        members[row].append(i)
    total = 0.0
    for places in members.values():
        mean_gap = sum(new[i] - float(batch.old[i]) for i in places) / len(places)
        for i in places:
            advantage = float(batch.advantage[i])
            ratio = math.exp(mean_gap if objective.loss == "gspo" else new[i] - float(batch.old[i]))
            bounded = min(max(ratio, 1 - objective.clip_low), 1 + objective.clip_high)
            if objective.loss == "is":
                term = -ratio * advantage
            elif objective.loss == "cispo":
                frozen = math.exp(float(batch.new[i].detach()) - float(batch.old[i]))
                term = -min(frozen, objective.ratio_cap) * advantage * new[i]
            else:
                gain = min(ratio * advantage, bounded * advantage)
                if objective.loss == "clip" and objective.negative_cap is not None and advantage < 0:
                    gain = max(gain, objective.negative_cap * advantage)
                term = -gain
            if objective.kl_coef:
                gap = float(batch.reference[i]) - new[i]
                term += objective.kl_coef * (math.exp(gap) - gap - 1)
            if objective.loss in ("grpo", "gspo"):
                total += term / len(places) / step.rows
            elif objective.loss == "dr_grpo":
                total += term / objective.max_completion_tokens / step.rows
            else:
                total += term / step.tokens
    return total


@pytest.mark.parametrize("objective", OBJECTIVES, ids=name)
def test_value_and_gradient_are_those_of_the_definition(objective: Objective, batch: TokenBatch):
    step = StepSize(tokens=sum(LENGTHS), rows=len(LENGTHS))
    if not objective.kl_coef:
        batch.reference = None
    terms = policy_loss(batch, objective, step)
    point = batch.new.detach().tolist()
    assert float(terms.total.detach()) == pytest.approx(
        reference_loss(objective, batch, point, step), rel=1e-12
    )
    terms.total.backward()
    for i in range(len(point)):
        h = 1e-6
        up, down = list(point), list(point)
        up[i] += h
        down[i] -= h
        slope = (
            reference_loss(objective, batch, up, step) - reference_loss(objective, batch, down, step)
        ) / (2 * h)
        assert float(batch.new.grad[i]) == pytest.approx(slope, abs=1e-8), i


TRL = [
    (Objective("clip"), {"loss_type": "dapo", "delta": 3.0}),
    (Objective("clip", negative_cap=None, kl_coef=0.1), {"loss_type": "dapo", "beta": 0.1}),
    (Objective("grpo"), {"loss_type": "grpo"}),
    (Objective("grpo", kl_coef=0.04), {"loss_type": "grpo", "beta": 0.04}),
    (Objective("dr_grpo", max_completion_tokens=16), {"loss_type": "dr_grpo"}),
    (Objective("dapo"), {"loss_type": "dapo"}),
    (Objective("gspo"), {"loss_type": "grpo", "importance_sampling_level": "sequence"}),
    (Objective("cispo"), {"loss_type": "cispo", "epsilon_high": 5.0}),
]


@pytest.mark.parametrize(("objective", "settings"), TRL, ids=[name(o) for o, _ in TRL])
def test_gradients_equal_those_of_trl(objective: Objective, settings: dict, batch: TokenBatch):
    from trl import GRPOTrainer

    width = max(LENGTHS)
    mask = torch.tensor([[1] * n + [0] * (width - n) for n in LENGTHS])

    def padded(values: torch.Tensor) -> torch.Tensor:
        return torch.zeros(mask.shape, dtype=torch.float64).masked_scatter(mask.bool(), values)

    theirs_new = batch.new.detach().clone().requires_grad_()
    trainer = SimpleNamespace(
        **{
            "top_entropy_quantile": 1.0,
            "off_policy_mask_threshold": None,
            "importance_sampling_level": "token",
            "beta": 0.0,
            "epsilon_low": objective.clip_low,
            "epsilon_high": objective.clip_high,
            "use_vllm": False,
            "aux_loss_enabled": False,
            "_entropy_bonus_enabled": False,
            "current_gradient_accumulation_steps": 1,
            "max_completion_length": 16,
        }
        | {key: value for key, value in settings.items() if key != "delta"},
        args=SimpleNamespace(
            delta=settings.get("delta"), use_bias_correction_kl=False, steps_per_generation=1
        ),
        model=SimpleNamespace(training=True),
        accelerator=SimpleNamespace(num_processes=1, gather=lambda x: x, reduce=lambda x, reduction: x),
        _metrics={"train": defaultdict(list)},
        _get_per_token_logps_and_entropies=lambda *_a, **_k: (
            padded(theirs_new),
            torch.zeros(mask.shape),
            None,
        ),
    )
    inputs = {
        "prompt_ids": torch.zeros((len(LENGTHS), 1), dtype=torch.long),
        "prompt_mask": torch.ones((len(LENGTHS), 1), dtype=torch.long),
        "completion_ids": torch.zeros(mask.shape, dtype=torch.long),
        "completion_mask": mask,
        "advantages": torch.tensor([1.0, -0.5, -2.0, 0.3, 0.9], dtype=torch.float64),
        "old_per_token_logps": padded(batch.old),
        "ref_per_token_logps": padded(batch.reference),
        "num_items_in_batch": mask.sum(),
    }
    theirs = GRPOTrainer._compute_loss(trainer, None, inputs)
    theirs.backward()
    if not objective.kl_coef:
        batch.reference = None
    ours = policy_loss(batch, objective, StepSize(sum(LENGTHS), len(LENGTHS)))
    ours.total.backward()
    assert float(ours.total.detach()) == pytest.approx(float(theirs.detach()), rel=1e-9)
    assert torch.allclose(batch.new.grad, theirs_new.grad, rtol=1e-9, atol=1e-12)


def test_clipping_is_counted_where_the_gradient_vanishes(batch: TokenBatch):
    batch.reference = None
    for objective in (Objective("clip"), Objective("dapo")):
        batch.new.grad = None
        terms = policy_loss(batch, objective, StepSize(30, 5))
        terms.total.backward()
        assert int(terms.clipped) == int((batch.new.grad == 0).sum()) > 0
        assert float(terms.ratio_max) == pytest.approx(float((batch.new - batch.old).detach().exp().max()))


def test_dr_grpo_needs_its_constant(batch: TokenBatch):
    with pytest.raises(ConfigError, match="max_completion_tokens"):
        policy_loss(batch, Objective("dr_grpo"), StepSize(30, 5))


@pytest.mark.parametrize("objective", OBJECTIVES, ids=name)
def test_the_last_digits_of_the_sampler_do_not_reach_the_gradient(objective: Objective, batch: TokenBatch):
    step = StepSize(tokens=len(batch.new), rows=len(LENGTHS))
    gradients = []
    for seed in (0, 1):
        noise = torch.randn(len(batch.new), generator=torch.Generator().manual_seed(seed))
        batch.old = batch.new.detach() + 3e-6 * noise
        batch.new.grad = None
        policy_loss(batch, objective, step).total.backward()
        gradients.append(batch.new.grad.clone())
    assert gradients[0].abs().sum() > 0
    assert torch.equal(*gradients)

"""The adapter's gradient is the slope of the loss, and clipping and Adam do what they say."""

from __future__ import annotations

import pytest
import torch

from osmosis_trainer.engines.protocol import Objective


@pytest.mark.parametrize("loss", ["clip", "is", "gspo"])
def test_finite_differences(make_learner, rows, gradient, loss):
    learner = make_learner(double=True)
    objective = Objective(loss, kl_coef=0.05)
    learner.forward_backward(rows, objective)
    vector = gradient(learner)
    parameters = list(learner.parameters.values())
    generator = torch.Generator().manual_seed(0)
    for _ in range(3):
        direction = torch.randn(vector.shape, generator=generator, dtype=vector.dtype)
        losses = []
        for sign in (1, -1):
            start = 0
            with torch.no_grad():
                for p in parameters:
                    p.add_(sign * 1e-4 * direction[start : start + p.numel()].view_as(p))
                    start += p.numel()
            losses.append(learner.forward_backward(rows, objective)["loss"])
            learner.drop_gradient()
            start = 0
            with torch.no_grad():
                for p in parameters:
                    p.sub_(sign * 1e-4 * direction[start : start + p.numel()].view_as(p))
                    start += p.numel()
        slope = (losses[0] - losses[1]) / 2e-4
        assert slope == pytest.approx(float(vector @ direction), rel=2e-3)


def test_the_step_is_clipped_adam(make_learner, rows):
    learner = make_learner()
    learner.forward_backward(rows, Objective())
    grads = {name: p.grad.clone() for name, p in learner.parameters.items()}
    before = {name: p.detach().clone() for name, p in learner.parameters.items()}
    norm = float(torch.cat([g.flatten() for g in grads.values()]).norm())
    limit = norm / 2
    metrics = learner.optim_step(1e-3, limit)
    assert metrics["grad_norm"] == pytest.approx(norm, rel=1e-5)
    for name, parameter in learner.parameters.items():
        clipped = grads[name] / 2
        # The first step of Adam, by hand: both moments are bias-corrected to the gradient itself.
        wanted = before[name] - 1e-3 * clipped / (clipped.abs() + 1e-8)
        assert torch.allclose(parameter.detach(), wanted, rtol=1e-3, atol=1e-6)
    assert all(p.grad is None for p in learner.parameters.values())


def test_the_adapter_is_on_every_linear_layer_but_the_head(make_learner):
    learner = make_learner()
    adapted = {name.split(".lora_")[0].rpartition(".")[2] for name in learner.parameters}
    assert adapted == {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
    assert all("lora_" in name and "lm_head" not in name for name in learner.parameters)
    assert len(learner.parameters) == 2 * 7 * 2

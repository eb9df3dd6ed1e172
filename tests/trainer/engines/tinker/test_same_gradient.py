"""Whatever losses the server has, its gradient is the one the local engine computes on the same rows."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
import torch

from osmosis_trainer.engines.local import LocalEngine, LoraSettings
from osmosis_trainer.engines.protocol import Engine, LossName, Objective, TrainingRow
from osmosis_trainer.engines.tinker import TinkerEngine

OBJECTIVES = {
    **{name: Objective(loss=name, max_completion_tokens=20) for name in get_args(LossName)},
    "clip narrow": Objective(clip_low=0.02, clip_high=0.05, negative_cap=1.01),
    "corrected mismatch": Objective(mismatch_cap=1.2),
    "corrected, of an older policy": Objective(mismatch_cap=1.2),
    "clip with kl": Objective(kl_coef=0.3),
    "part of a step": Objective(total_tokens=500, total_rows=30),
}


def ragged_rows(seed: int = 0) -> list[TrainingRow]:
    """Rows of several lengths, with tool results between sampled tokens, sampled by another policy."""
    generator = random.Random(seed)
    rows = []
    for n in range(6):
        length = generator.randint(6, 30)
        mask = [0, 0, 0] + [generator.choice([0, 1, 1]) for _ in range(length - 3)]
        rows.append(
            TrainingRow(
                [generator.randrange(2, 96) for _ in range(length)],
                mask,
                [-generator.uniform(0.5, 9.0) for _ in range(length)],
                generator.choice([1.0, -1.0, 0.7, -0.3]),
                n // 2,
                f"row-{n}",
            )
        )
    return rows


async def near_policy(engine: TinkerEngine, rows: list[TrainingRow], seed: int = 1) -> list[TrainingRow]:
    """The rows with log-probabilities near the present ones, as a sampler one step behind would give."""
    generator = random.Random(seed)
    found = []
    for row, scored in zip(rows, await engine.score(rows), strict=True):
        values = iter(scored)
        near = [next(values) + generator.gauss(0.0, 0.3) if trained else 0.0 for trained in row.mask]
        found.append(replace(row, logprobs=near))
    return found


Train = Callable[[Any, int], Awaitable[list[TrainingRow]]]


@pytest.fixture
async def twins(
    open_tinker: Any, make_engine: Callable[..., LocalEngine], train: Train, tmp_path: Path
) -> tuple[TinkerEngine, LocalEngine]:
    """A tinker engine after a step of training, and a local one with the same weights."""
    tinker: TinkerEngine = await open_tinker(max_grad_norm=1e3)
    assert isinstance(tinker, Engine)
    await train(tinker, 1)
    await tinker.export_adapter(tmp_path / "adapter")
    local = make_engine(lora=LoraSettings(4, 32.0, 0))
    from osmosis_trainer.learner import lora

    learner: Any = local._learner
    lora.restore(learner.model, tmp_path / "adapter", LoraSettings(4, 32.0, 0))
    return tinker, local


async def test_losses_and_gradients_are_those_of_the_local_engine(
    twins: tuple[TinkerEngine, LocalEngine], server: Any
) -> None:
    tinker, local = twins
    learner: Any = local._learner
    near = await near_policy(tinker, ragged_rows())
    old = [replace(row, anchors=[value + 0.1 for value in row.logprobs]) for row in near]
    for name, objective in OBJECTIVES.items():
        rows = old if "older" in name else near
        server.gradients.clear()
        ours = await local.forward_backward(rows, objective)
        theirs = await tinker.forward_backward(rows[:4], objective) if "part" in name else {}
        if theirs:  # a step fed in two calls
            more = await tinker.forward_backward(rows[4:], objective)
            theirs["loss"] += more["loss"]
        else:
            theirs = await tinker.forward_backward(rows, objective)
            # Entropy is estimated from the sampled tokens; packing and folding are the local engine's own.
            for key in set(ours) - {"entropy", "computed_tokens", "micro_batches"}:
                assert theirs[key] == pytest.approx(ours[key], rel=1e-4, abs=1e-5), (name, key)
        assert theirs["loss"] == pytest.approx(ours["loss"], rel=1e-5, abs=1e-6), name
        # A rate of 0 leaves the weights alone, so that every objective is asked at the same point.
        norms = await tinker.optim_step(lr=0.0, max_grad_norm=1e3)
        [gradient] = server.gradients
        expected = torch.cat([p.grad.flatten() for p in learner.parameters.values()])
        got = torch.cat([gradient[key].flatten() for key in learner.parameters])
        assert float((got - expected).norm() / expected.norm()) < 1e-5, name
        assert norms["grad_norm"] == pytest.approx(float(expected.norm()), rel=1e-4)
        learner.drop_gradient()

"""Memory that does not suffice halves the pass, says so, and changes no result; what can never fit is found out at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from osmosis_trainer.engines.local.opening import load_engine
from osmosis_trainer.engines.protocol import Objective
from osmosis_trainer.learner import passes
from osmosis_trainer.learner.memory import OutOfMemoryError, is_out_of_memory
from osmosis_trainer.learner.packs import make_packs
from osmosis_trainer.settings import RunSettings


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`limit(n)` lets passes of more than n tokens run out of memory; it returns the sizes that were tried."""
    honest = passes.token_logprobs

    def set_limit(tokens: int) -> list[int]:
        tried: list[int] = []

        def tight(model: Any, batch: Any, temperature: float) -> Any:
            tried.append(batch.ids.numel())
            if tried[-1] > tokens:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return honest(model, batch, temperature)

        monkeypatch.setattr(passes, "token_logprobs", tight)
        return tried

    return set_limit


@pytest.mark.parametrize("form", ["auto", "packed", "padded"])
def test_passes_are_halved_until_they_fit(
    make_learner: Any, rows: Any, gradient: Any, limit: Any, form: str
) -> None:
    learner = make_learner(form=form)
    told: list[str] = []
    learner._log = told.append
    learner.forward_backward(rows, Objective())
    wanted = gradient(learner)
    tried = limit(130)
    learner.forward_backward(rows, Objective())
    got = gradient(learner)
    assert float((got - wanted).norm() / wanted.norm()) <= 1e-5
    assert max(tried) > 130
    assert told
    assert f"at most {learner.token_budget} tokens" in told[-1]


def test_a_row_that_never_fits_is_told_with_its_length(make_learner: Any, rows: Any, limit: Any) -> None:
    limit(10)
    learner = make_learner()
    with pytest.raises(OutOfMemoryError, match=r"a row of 81 tokens .* lower \[training\] max_prompt_length"):
        learner.forward_backward(rows, Objective())


def test_groups_are_folded_within_the_budget_only(rows: Any) -> None:
    whole = [pack.length for pack in make_packs(rows, "auto", 10_000)]
    for budget in (max(whole) - 1, 100):
        made = make_packs(rows, "auto", budget)
        assert all(pack.length <= budget for pack in made if len(pack.rows) > 1)
        assert sum(len(pack.rows) for pack in made) == len(rows)
        assert [pack.length for pack in made] != whole


def test_the_longest_rows_are_tried_before_anything_is_learned(make_learner: Any, limit: Any) -> None:
    learner = make_learner(token_budget=256)
    told: list[str] = []
    learner._log = told.append
    tried = limit(70)
    before = {name: p.detach().clone() for name, p in learner.parameters.items()}
    learner.rehearse(64)
    assert (tried[0], tried[-1], learner.token_budget) == (256, 64, 64)
    assert len(told) == 2
    assert all(p.grad is None and torch.equal(p, before[name]) for name, p in learner.parameters.items())
    with pytest.raises(OutOfMemoryError, match="a row of 80 tokens"):
        learner.rehearse(80)


async def test_the_engine_tries_as_many_tokens_as_a_rollout_may_have(model_folders: Path, limit: Any) -> None:
    told: list[str] = []
    lengths = {"max_prompt_length": 60, "max_response_length": 40}
    settings = RunSettings.from_config({"training": lengths, "advanced": {"tokens_per_micro_batch": 400}})
    engine = load_engine(model_folders / "base", settings, told.append)
    tried = limit(250)
    await engine.rehearse()
    assert tried == [400, *[200] * 2]
    assert "at most 200 tokens" in told[0]
    await engine.close()


def test_what_the_cpu_says_is_understood() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 60)
    assert is_out_of_memory(caught.value)
    assert not is_out_of_memory(RuntimeError("shapes do not match"))

"""Learner processes: the same numbers as one learner, state that fits any number of them, and a killed one replaced.

The processes of the fast tests hold a part of the base model each; with all of it in each the slow ones do the same.
"""

from __future__ import annotations

import os
import random
import resource
import signal
import warnings
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from osmosis_trainer.engines.local import LocalEngine, LocalSettings, LoraSettings
from osmosis_trainer.engines.protocol import Objective, TrainingRow
from osmosis_trainer.engines.split.durable_learner import DurableLearner
from osmosis_trainer.engines.split.learner_group import LearnerSettings
from osmosis_trainer.engines.split.shares import split_places
from osmosis_trainer.errors import ConfigError, NonFiniteLossError, StateError

LORA = LoraSettings(rank=4, alpha=8)
# Sums of the same numbers in another order, in float32.
RELATIVE = 1e-5


def ragged_rows(seed: int, groups: int = 5) -> list[TrainingRow]:
    """Groups of unlike size and length, with observations between answers."""
    dice = random.Random(seed)
    rows = []
    for group in range(groups):
        prompt = [dice.randrange(2, 96) for _ in range(dice.randrange(4, 30))]
        for sample in range(dice.randrange(2, 5)):
            answer = [dice.randrange(2, 96) for _ in range(dice.randrange(2, 20))]
            mask = [0] * len(prompt) + [int(dice.random() < 0.8) for _ in answer]
            logprobs = [-dice.uniform(3.0, 6.0) * value for value in mask]
            rows.append(
                TrainingRow(prompt + answer, mask, logprobs, dice.uniform(-1, 1), group, f"{group}/{sample}")
            )
    return rows


# The processes belong to the event loop in which they were started.
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture
def local(base_folder: Path) -> LocalEngine:
    return LocalEngine.load(base_folder, LocalSettings(lora=LORA, threads=1))


def settings(base: Path, processes: int, **changes: Any) -> LearnerSettings:
    plain = LearnerSettings(base, processes, LORA, threads=1, token_budget=200, weight_decay=0.0)
    return replace(plain, **changes)


@pytest_asyncio.fixture(
    scope="module", loop_scope="module", params=["fsdp", pytest.param("none", marks=pytest.mark.slow)]
)
async def pair(
    base_folder: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> AsyncIterator[DurableLearner]:
    """Two learner processes, for all tests: starting them is what takes long."""
    folder = tmp_path_factory.mktemp("pair")
    sharded = settings(base_folder, 2, sharding=request.param, recompute=request.param == "fsdp")
    learner = DurableLearner(sharded, folder / "kept", lambda text: None)
    described = await learner.open()
    assert (described["dtype"], described["device"]) == ("float32", "cpu")
    await learner.save(folder / "first", {"policy_version": 0})
    yield learner
    await learner.close()


def close(left: dict[str, float], right: dict[str, float]) -> None:
    """Metrics agree, but for those that tell how the work was cut up."""
    for key in left.keys() - {"micro_batches", "computed_tokens"}:
        assert left[key] == pytest.approx(right[key], rel=RELATIVE, abs=1e-6), key


def adapter(folder: Path) -> dict[str, Any]:
    weights: dict[str, Any] = load_file(folder / "adapter_model.safetensors")
    return weights


def first_moments(folder: Path) -> torch.Tensor:
    """After one step: the gradient of all parameters, times a constant."""
    kept = torch.load(folder / "optimizer.pt")["state"]
    return torch.cat([kept[key]["exp_avg"].flatten() for key in sorted(kept)])


def relative_error(got: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((got - wanted).norm() / wanted.norm())


def same_tensors(left: dict[str, Any], right: dict[str, Any]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


async def test_two_processes_learn_what_one_learner_learns(
    pair: DurableLearner, local: LocalEngine, base_folder: Path, tmp_path: Path
) -> None:
    objectives = [Objective(), Objective("grpo", kl_coef=0.1), Objective("gspo", mismatch_cap=2.0)]
    for step, objective in enumerate(objectives):
        # A single group is one process's, and the other has nothing to compute.
        rows = ragged_rows(step, groups=1 if step == 1 else 5)
        if objective.mismatch_cap is not None:
            rows = [replace(row, anchors=[value + 0.3 for value in row.logprobs]) for row in rows]
        close(await pair.forward_backward(rows, objective), await local.forward_backward(rows, objective))
        mine = await pair.optim_step(1e-3, 1.0)
        theirs = await local.optim_step(lr=1e-3, max_grad_norm=1.0)
        assert mine["grad_norm"] == pytest.approx(theirs["grad_norm"], rel=RELATIVE)
        if not step:
            await pair.save(tmp_path / "mine", {})
            await local.save_state(tmp_path / "theirs")
            assert relative_error(*map(first_moments, (tmp_path / "mine", tmp_path / "theirs"))) < RELATIVE
    await pair.export(tmp_path / "pair")
    await local.export_adapter(tmp_path / "local")
    weights, wanted = adapter(tmp_path / "pair"), adapter(tmp_path / "local")
    assert weights.keys() == wanted.keys()
    assert max(float((weights[name] - wanted[name]).abs().max()) for name in wanted) < 1e-5

    # A gradient that is not finite in one process is dropped in both.
    rows = ragged_rows(9)
    bad = [TrainingRow(r.token_ids, r.mask, r.logprobs, float("inf"), r.group, r.row_id) for r in rows[:1]]
    with pytest.raises(NonFiniteLossError):
        await pair.forward_backward([*bad, *rows[1:]], Objective())
    assert (await pair.optim_step(1e-3, 1.0))["grad_norm"] == 0.0

    # Its state continues in one process as exactly as in two.
    await pair.save(tmp_path / "state", {"policy_version": 7})
    await local.load_state(tmp_path / "state")
    assert local.policy_version == 7
    await local.save_state(tmp_path / "again")
    assert same_tensors(adapter(tmp_path / "again"), adapter(tmp_path / "state"))
    again, state = (torch.load(tmp_path / name / "optimizer.pt") for name in ("again", "state"))
    assert again["state"].keys() == state["state"].keys()
    assert all(same_tensors(again["state"][key], state["state"][key]) for key in state["state"])
    rows = ragged_rows(4)
    mine, theirs = await local.score(rows), await pair.score(rows)
    for one, other in zip(mine, theirs, strict=True):
        assert one == pytest.approx(other, abs=1e-5)
    (tmp_path / "state" / "optimizer.pt").unlink()
    with pytest.raises(StateError, match=r"optimizer\.pt is missing"):
        await pair.load(tmp_path / "state")
    await local.close()


async def test_a_killed_process_is_replaced_without_a_trace(pair: DurableLearner, tmp_path: Path) -> None:
    await pair.save(tmp_path / "begin", {})
    restarts = pair.restarts
    for name in ("calm", "rough"):
        await pair.load(tmp_path / "begin")
        for step in range(2):
            await pair.forward_backward(ragged_rows(step), Objective())
            if name == "rough" and step:
                # A whole step and a gradient since the saved state: new processes do both again.
                os.kill(pair.pids[1], signal.SIGKILL)
            await pair.optim_step(1e-2, 1.0)
        await pair.export(tmp_path / name)
    assert pair.restarts == restarts + 1
    calm, rough = ((tmp_path / name / "adapter_model.safetensors").read_bytes() for name in ("calm", "rough"))
    assert calm == rough


@pytest.mark.slow
async def test_what_keeps_a_process_from_starting_is_told(tmp_path: Path) -> None:
    learner = DurableLearner(settings(tmp_path, 2), tmp_path / "kept", lambda text: None)
    with pytest.raises(ConfigError, match=r"no model folder: config\.json is missing"):
        await learner.open()


async def test_each_process_holds_its_part_of_the_base_model(
    pair: DurableLearner, local: LocalEngine, base_folder: Path, tmp_path: Path
) -> None:
    whole = local._train().base.num_parameters() * 4 - sum(
        4 * p.numel() for p in local._train().parameters.values()
    )
    part = {"fsdp": 0.5, "none": 1.0}[pair.settings.sharding]
    rows = ragged_rows(7)
    await pair.rehearse(64)
    assert pair.settings.token_budget == 200
    for work in (
        pair.forward_backward(rows, Objective(kl_coef=0.1)),
        pair.optim_step(1e-2, 1.0),
        pair.score(rows),
    ):
        await work
        assert [held["base_bytes"] / whole for held in await pair.describe()] == pytest.approx(
            [part] * 2, rel=0.01
        )
    # What is written is an adapter for anyone: PEFT, over a model that is whole.
    await pair.export(tmp_path / "adapter")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft asks transformers for what was renamed
        plain = AutoModelForCausalLM.from_pretrained(base_folder)
        theirs = PeftModel.from_pretrained(plain, tmp_path / "adapter")
    row = rows[0]
    with torch.no_grad():
        logprobs = theirs(input_ids=torch.tensor([row.token_ids])).logits[0].log_softmax(-1)
    wanted = [float(logprobs[i - 1, row.token_ids[i]]) for i in range(len(row.mask)) if row.mask[i]]
    assert (await pair.score(rows))[0] == pytest.approx(wanted, abs=1e-5)
    await local.close()


@pytest.mark.slow
async def test_processes_short_of_memory_are_replaced_by_ones_with_smaller_passes(
    base_folder: Path, tmp_path: Path
) -> None:
    lines: list[str] = []
    learner = DurableLearner(
        settings(base_folder, 2, sharding="fsdp", token_budget=1 << 18), tmp_path / "kept", lines.append
    )
    await learner.open()
    try:
        # One process runs out of memory in a pass for which the other waits.
        used = int(Path(f"/proc/{learner.pids[1]}/statm").read_text().split()[0]) * resource.getpagesize()
        resource.prlimit(learner.pids[1], resource.RLIMIT_AS, (used + (64 << 20), used + (64 << 20)))
        await learner.rehearse(512)
        assert (learner.settings.token_budget, learner.restarts) == (1 << 17, 1)
        assert "passes of at most 131072 tokens from now on" in lines[-1]
    finally:
        await learner.close()


async def test_groups_stay_together_and_the_load_is_even() -> None:
    rows = ragged_rows(1, groups=12)
    shares = [[rows[place] for place in share] for share in split_places(rows, 3)]
    assert sorted(row.row_id for share in shares for row in share) == sorted(row.row_id for row in rows)
    groups = [{row.group for row in share} for share in shares]
    assert sum(map(len, groups)) == len(set.union(*groups)) == 12
    loads = [sum(len(row.token_ids) for row in share) for share in shares]
    assert max(loads) < 1.3 * min(loads)
    assert split_places(rows[:1], 3) == [[0], [], []]

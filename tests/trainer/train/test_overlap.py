"""Rollouts of the next step are collected while a step learns ([advanced] max_staleness = 1)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from osmosis_trainer.collect.attempt import AttemptKey
from osmosis_trainer.collect.stop import StoppedError
from osmosis_trainer.engines.protocol import Objective, TrainingRow
from osmosis_trainer.errors import EngineError, NonFiniteLossError, StateError
from osmosis_trainer.learner.anchor import anchor
from osmosis_trainer.learner.losses import ROUNDING
from osmosis_trainer.train import train

MakeRun = Callable[..., Any]


def values(run: Any, key: str) -> dict[int, float]:
    made = run.report._events.of("metrics")
    return {event["step"]: event["values"][key] for event in made if key in event["values"]}


def started(run: Any) -> list[AttemptKey]:
    return [AttemptKey(*json.loads(line)["key"]) for line in run.run_attempt.starts.read_text().splitlines()]


def rows_by_step(run: Any) -> set[tuple[str, int, int, int]]:
    return {(key.phase, key.step, key.slot, key.row_index) for key in started(run)}


@pytest.fixture
def ahead(make_run: MakeRun) -> MakeRun:
    def make(*name: str, **changes: Any) -> Any:
        changes["advanced"] = {"max_staleness": 1, "refill_limit": 0} | changes.get("advanced", {})
        return make_run(*name, **changes)

    return make


async def test_the_next_steps_rollouts_run_while_a_step_learns(ahead: MakeRun) -> None:
    run = ahead()
    learns = run.engine.forward_backward
    met: list[int] = []

    async def wait_for_company(rows: list[TrainingRow], objective: Objective) -> dict[str, float]:
        step = len(met) + 1
        async with asyncio.timeout(300):
            while step < 4 and not any(key.step == step + 1 for key in started(run)):  # noqa: ASYNC110
                await asyncio.sleep(0)
        met.append(step)
        return await learns(rows, objective)

    run.engine.forward_backward = wait_for_company
    await train(run)
    assert met == [1, 2, 3, 4]
    assert values(run, "rollout/staleness") == {1: 0.0, 2: 1.0, 3: 1.0, 4: 1.0}
    assert values(run, "ledger/stale") == dict.fromkeys((1, 2, 3, 4), 0.0)
    # The last state has nothing open, and all steps took the same rows as without the overlap.
    plain = ahead("plain", advanced={"max_staleness": 0})
    await train(plain)
    assert values(plain, "rollout/staleness") == dict.fromkeys((1, 2, 3, 4), 0.0)
    assert rows_by_step(run) == rows_by_step(plain)
    assert run.engine.rates == plain.engine.rates


async def test_every_token_of_a_step_has_the_version_known_beforehand(ahead: MakeRun) -> None:
    run = ahead(training={"n_samples_per_prompt": 6})
    # Some attempts are tried again, whichever step is learned from meanwhile.
    fate = run.run_attempt.fate
    run.run_attempt.fate = lambda key, dice: (
        ("invalid", True, None) if key.attempt == 0 and key.sample_index == 1 else fate(key, dice)
    )
    versions: dict[int, set[int]] = {}
    attempts = run.run_attempt.finished

    def noted(key: AttemptKey, rollout_id: str) -> Any:
        if key.phase == "train":
            versions.setdefault(key.step, set()).add(run.engine.policy_version)
        return attempts(key, rollout_id)

    run.run_attempt.finished = noted
    await train(run)
    assert versions == {1: {0}, 2: {0}, 3: {1}, 4: {2}}
    assert any(key.attempt == 1 and key.step == 3 for key in started(run))


async def test_tokens_of_an_older_policy_than_agreed_are_masked_and_counted(ahead: MakeRun) -> None:
    run = ahead(advanced={"max_steps": 2, "validation_rows": 0})
    run.run_attempt.fate = lambda key, dice: ("graded", False, dice.random())
    finished = run.run_attempt.finished

    def one_is_late(key: AttemptKey, rollout_id: str) -> Any:
        kept = run.engine.policy_version
        run.engine.policy_version -= int(key.step == 2 and key.slot == 0 and key.sample_index == 0)
        try:
            return finished(key, rollout_id)
        finally:
            run.engine.policy_version = kept

    run.run_attempt.finished = one_is_late
    await train(run)
    assert values(run, "ledger/stale") == {1: 0.0, 2: 4.0}
    assert [len(rows) for rows in run.engine.trained] == [12, 11]


async def test_a_step_that_is_skipped_leaves_the_next_one_fresh(ahead: MakeRun) -> None:
    run = ahead(advanced={"max_steps": 3})
    run.engine.broken_losses = 1
    await train(run)
    assert values(run, "rollout/staleness") == {1: 0.0, 2: 0.0, 3: 1.0}
    assert len(run.engine.rates) == 2

    run = ahead("broken", advanced={"max_steps": 4})
    run.engine.broken_losses = 3
    with pytest.raises(NonFiniteLossError):
        await train(run)


async def test_an_engine_that_fails_ends_the_rollouts_ahead_too(ahead: MakeRun) -> None:
    run = ahead(advanced={"validation_rows": 0})

    async def broken(rows: list[TrainingRow], objective: Objective) -> dict[str, float]:
        run.run_attempt.hold = asyncio.Event()
        async with asyncio.timeout(300):
            while not run.run_attempt.open:  # noqa: ASYNC110
                await asyncio.sleep(0)
        raise EngineError("out of order")

    run.engine.forward_backward = broken
    with pytest.raises(EngineError, match="out of order"):
        await asyncio.wait_for(train(run), 300)
    assert run.run_attempt.open == 0


async def test_a_stop_in_the_rollouts_ahead_ends_with_the_last_finished_step(ahead: MakeRun) -> None:
    run = ahead(advanced={"max_steps": 50})

    def fate(key: AttemptKey, dice: Any) -> tuple[str, bool, float | None]:
        if key.step == 4 and key.phase == "train":
            run.stop.request("the test asked for it")
        return "graded", False, dice.random()

    run.run_attempt.fate = fate
    with pytest.raises(StoppedError):
        await train(run)
    assert run.states.steps()[-1] == 2
    made = run.report._events.of("checkpoint")
    assert [event["step"] for event in made] == [2]
    assert (run.checkpoints / "step-2" / "adapter.txt").read_text() == run.engine.adapter


async def test_rollouts_that_the_state_counts_on_must_be_in_the_journal(ahead: MakeRun) -> None:
    run = ahead(advanced={"max_steps": 50})

    def fate(key: AttemptKey, dice: Any) -> tuple[str, bool, float | None]:
        if key.step == 4:
            run.stop.request("the test asked for it")
        return "graded", False, dice.random()

    run.run_attempt.fate = fate
    with pytest.raises(StoppedError):
        await train(run)
    path = run.journals / "step-3.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    again = ahead(advanced={"max_steps": 50})
    with pytest.raises(StateError, match=r"step-3\.jsonl lacks attempt train/3/"):
        await train(again)


def test_scores_stand_in_for_the_samplers_numbers_up_to_rounding_only() -> None:
    row = TrainingRow([5, 6, 7, 8], [0, 1, 0, 1], [0.0, -1.0, 0.0, -2.0], 1.0, 0, "a")
    near = -1.0 + 0.5 * ROUNDING
    [anchored], apart = anchor([row], [[near, -2.5]])
    assert anchored.logprobs == [0.0, near, 0.0, -2.0]
    assert apart["logprob_gap_max"] == 0.5
    [beside], same = anchor([row], [[near, -2.5]], external=True)
    assert (beside.logprobs, beside.anchors) == (row.logprobs, [0.0, near, 0.0, -2.5])
    assert same == apart
    # (exp(g) - 1 - g) at g = -0.5, over two tokens; the other gap gives 5e-11.
    assert apart["mismatch_kl"] == pytest.approx((0.6065306597 - 1 + 0.5) / 2, abs=1e-9)

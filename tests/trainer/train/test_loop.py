"""The loop's decisions, with a scripted engine and agent."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from osmosis_trainer.collect import collector
from osmosis_trainer.collect.attempt import AttemptKey
from osmosis_trainer.collect.health import UnhealthyRunError
from osmosis_trainer.collect.stop import StoppedError
from osmosis_trainer.errors import NonFiniteLossError, StateError
from osmosis_trainer.train import train

MakeRun = Callable[..., Any]


def events(run: Any, kind: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = run.report._events.of(kind)
    return found


def started(run: Any) -> list[AttemptKey]:
    return [AttemptKey(*json.loads(line)["key"]) for line in run.run_attempt.starts.read_text().splitlines()]


def values(run: Any, key: str) -> dict[int, float]:
    return {event["step"]: event["values"][key] for event in events(run, "metrics") if key in event["values"]}


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(300):
        while not condition():  # noqa: ASYNC110 - files and counters have no event to wait for
            await asyncio.sleep(0)


async def test_steps_cover_all_epochs_and_validation_rows_are_only_measured(make_run: MakeRun) -> None:
    run = make_run(advanced={"max_steps": None, "refill_limit": 0}, training={"total_epochs": 2})
    await train(run)
    # 23 rows less 4 for validation: ceil(19 / 3) steps per epoch.
    assert events(run, "progress")[-1]["total_steps"] == 14
    trained = {key.row_index for key in started(run) if key.phase == "train"}
    measured = {key.row_index for key in started(run) if key.phase == "eval"}
    assert len(trained) == 19
    assert len(measured) == 4
    assert not trained & measured
    assert set(values(run, "eval/validation/reward")) == {0, 2, 4, 6, 8, 10, 12, 14}


async def test_a_step_is_batch_times_samples(make_run: MakeRun) -> None:
    run = make_run(advanced={"refill_limit": 0})
    run.run_attempt.fate = lambda key, dice: ("graded", False, dice.random())
    await train(run)
    keys = [key for key in started(run) if key.phase == "train"]
    assert len(keys) == 4 * 3 * 4
    assert {(key.step, key.slot, key.sample_index) for key in keys} == {
        (step, slot, index) for step in (1, 2, 3, 4) for slot in range(3) for index in range(4)
    }
    assert run.run_attempt.most_open == run.concurrency


async def test_rows_are_trained_in_one_order_whatever_finishes_first(make_run: MakeRun) -> None:
    orders = []
    for name in ("a", "b"):
        random.seed(name)
        run = make_run(name)
        await train(run)
        orders.append([row.row_id for rows in run.engine.trained for row in rows])
    assert orders[0] == orders[1]
    assert [row_id for row_id in orders[0] if row_id.startswith("train/1/")] == sorted(
        row_id for row_id in orders[0] if row_id.startswith("train/1/")
    )


async def test_groups_that_teach_nothing_are_refilled_with_further_rows(make_run: MakeRun) -> None:
    run = make_run(advanced={"refill_limit": 3, "max_steps": 1, "validation_rows": 0})
    # Only slots 1, 3 and 4 have differing rewards: 2 groups are replaced, then 1, then 1.
    run.run_attempt.fate = lambda key, dice: (
        "graded",
        False,
        float(key.slot in (1, 3, 4) and key.sample_index == 0),
    )
    await train(run)
    assert values(run, "rollout/groups_tried") == {1: 5.0}
    assert values(run, "rollout/groups_trained") == {1: 3.0}
    assert values(run, "rollout/zero_variance_ratio") == {1: 0.4}
    assert {row.group for row in run.engine.trained[0]} == {1, 3, 4}
    assert len({key.row_index for key in started(run)}) == 5


async def test_after_the_last_refill_what_is_left_is_trained(make_run: MakeRun) -> None:
    run = make_run(advanced={"refill_limit": 2, "max_steps": 1, "validation_rows": 0})
    run.run_attempt.fate = lambda key, dice: ("graded", False, float(key.slot == 0 and key.sample_index == 0))
    await train(run)
    assert values(run, "rollout/groups_tried") == {1: 3.0 + 2.0 + 2.0}
    assert values(run, "rollout/groups_trained") == {1: 1.0}


async def test_without_any_differing_rewards_nothing_is_trained_and_the_log_says_so(
    make_run: MakeRun,
) -> None:
    run = make_run(advanced={"max_steps": 1, "validation_rows": 0})
    run.run_attempt.fate = lambda key, dice: ("graded", False, 1.0)
    await train(run)
    assert run.engine.trained == []
    assert run.engine.policy_version == 0
    assert any("nothing is trained" in event["message"] for event in events(run, "log"))


async def test_infrastructure_failures_are_tried_three_times_with_seeds_of_their_own(
    make_run: MakeRun,
) -> None:
    run = make_run(advanced={"max_steps": 1, "validation_rows": 0, "refill_limit": 0})
    run.run_attempt.fate = lambda key, dice: (
        ("invalid", True, None)
        if (key.sample_index == 0 and key.slot == 0)
        or (key.sample_index == 1 and key.attempt == 0 and key.slot == 1)
        else ("graded", False, float(key.sample_index % 2))
    )
    await train(run)
    tries = [key for key in started(run) if (key.slot, key.sample_index) == (0, 0)]
    assert [key.attempt for key in tries] == [0, 1, 2]
    assert len({key.seed(11) for key in tries}) == 3
    assert values(run, "rollout/invalid_ratio") == {1: 1 / 12}
    # The sample that worked at its second try is trained; the other one leaves its group's mean alone.
    trained = {row.row_id.rsplit("/", 1)[0]: row.advantage for row in run.engine.trained[0]}
    second = next(key for key in started(run) if (key.slot, key.sample_index, key.attempt) == (1, 1, 1))
    assert trained[str(second)] == 0.5
    group = [value for name, value in trained.items() if name.startswith("train/1/0/")]
    assert sorted(group) == pytest.approx([-2 / 3, 1 / 3, 1 / 3])


async def test_failures_of_the_users_code_are_not_repeated(make_run: MakeRun) -> None:
    run = make_run(advanced={"max_steps": 1, "validation_rows": 0, "refill_limit": 0})
    run.run_attempt.fate = lambda key, dice: (
        ("invalid", False, None)
        if key.sample_index == 0 and key.slot == 0
        else ("graded", False, dice.random())
    )
    await train(run)
    assert all(key.attempt == 0 for key in started(run))


async def test_too_many_invalid_samples_fail_the_run(make_run: MakeRun) -> None:
    run = make_run(advanced={"refill_limit": 0})
    run.run_attempt.fate = lambda key, dice: (
        ("invalid", False, None) if key.sample_index == 0 else ("graded", False, dice.random())
    )
    with pytest.raises(UnhealthyRunError, match="9 of 36 samples of the last 3 steps"):
        await train(run)
    assert run.states.steps() == [1, 2]


async def test_the_learning_rate_warms_up_and_stays(make_run: MakeRun) -> None:
    run = make_run(advanced={"warmup_ratio": 0.5, "max_steps": 4})
    await train(run)
    assert run.engine.rates == pytest.approx([0.5e-3, 1e-3, 1e-3, 1e-3])
    assert values(run, "train/lr") == pytest.approx({1: 0.5e-3, 2: 1e-3, 3: 1e-3, 4: 1e-3})


async def test_a_loss_that_is_not_finite_skips_the_step_and_three_in_a_row_fail(make_run: MakeRun) -> None:
    run = make_run("two", advanced={"max_steps": 4})
    run.engine.broken_losses = 2
    await train(run)
    assert len(run.engine.rates) == 2
    assert sum("is skipped" in event["message"] for event in events(run, "log")) == 2

    run = make_run("three", advanced={"max_steps": 4})
    run.engine.broken_losses = 3
    with pytest.raises(NonFiniteLossError):
        await train(run)
    assert run.engine.rates == []


async def test_checkpoints_every_few_steps_and_at_the_end(make_run: MakeRun) -> None:
    run = make_run(checkpoints={"checkpoint_save_freq": 3, "eval_interval": 50})
    await train(run)
    made = events(run, "checkpoint")
    assert [(event["step"], event["final"]) for event in made] == [(3, False), (4, True)]
    assert [event["reward"] for event in made] == [values(run, "rollout/raw_reward")[step] for step in (3, 4)]
    assert (run.checkpoints / "step-4" / "adapter.txt").read_text() == run.engine.adapter


async def test_the_best_validation_reward_is_noted(make_run: MakeRun) -> None:
    run = make_run(advanced={"max_steps": 6})
    await train(run)
    rewards = values(run, "eval/validation/reward")
    best = json.loads((run.checkpoints / "best.json").read_text())
    assert best["validation_reward"] == max(rewards.values())
    assert rewards[best["step"]] == best["validation_reward"]


def best_at_step_3(key: AttemptKey, dice: random.Random) -> tuple[str, bool, float | None]:
    if key.phase == "eval":
        return "graded", False, {0: 0.1, 1: 0.2, 2: 0.3, 3: 0.9, 4: 0.4, 5: 0.5}[key.step]
    return "graded", False, dice.random()


async def test_the_best_checkpoint_is_kept_and_published_at_the_end(make_run: MakeRun) -> None:
    run = make_run(
        advanced={"max_steps": 5, "keep_checkpoints": 1},
        checkpoints={"eval_interval": 1, "checkpoint_save_freq": 2},
    )
    run.run_attempt.fate = best_at_step_3
    adapters: dict[int, str] = {}
    publish = run.engine.publish

    async def noted() -> int:
        version: int = await publish()
        adapters[version] = run.engine.adapter
        return version

    run.engine.publish = noted
    await train(run)
    made = events(run, "checkpoint")
    assert [(event["step"], event["final"]) for event in made] == [
        (2, False),
        (4, False),
        (3, False),
        (5, True),
    ]
    rewards = values(run, "rollout/raw_reward")
    assert [event["reward"] for event in made] == [rewards[event["step"]] for event in made]
    # The newest and the best; the others were sent, and their folders are gone.
    assert sorted(path.name for path in run.checkpoints.iterdir()) == ["best.json", "step-3", "step-5"]
    assert (run.checkpoints / "step-3" / "adapter.txt").read_text() == adapters[3]
    assert json.loads((run.checkpoints / "best.json").read_text())["step"] == 3


async def test_a_stopped_run_publishes_its_best_checkpoint_too(make_run: MakeRun) -> None:
    run = make_run(advanced={"max_steps": 50}, checkpoints={"eval_interval": 1, "checkpoint_save_freq": 50})

    def fate(key: AttemptKey, dice: random.Random) -> tuple[str, bool, float | None]:
        if key.step == 5 and key.phase == "train":
            run.stop.request("the test asked for it")
        return best_at_step_3(key, dice)

    run.run_attempt.fate = fate
    with pytest.raises(StoppedError):
        await train(run)
    made = [(event["step"], event["final"]) for event in events(run, "checkpoint")]
    assert made == [(3, False), (4, True)]


async def test_only_the_last_two_states_are_kept_and_journals_they_cover_are_dropped(
    make_run: MakeRun,
) -> None:
    run = make_run()
    await train(run)
    assert run.states.steps() == [3, 4]
    assert [path.name for path in run.journals.iterdir()] == ["step-4.jsonl"]


async def test_a_stop_lets_open_rollouts_finish_and_saves(make_run: MakeRun) -> None:
    run = make_run(advanced={"max_steps": 50})
    agent = run.run_attempt
    stopped = asyncio.Event()

    def fate(key: AttemptKey, dice: random.Random) -> tuple[str, bool, float | None]:
        if key.step == 3 and key.phase == "train":
            run.stop.request("the test asked for it")
            stopped.set()
        return "graded", False, dice.random()

    agent.fate = fate
    with pytest.raises(StoppedError, match="the test asked"):
        await train(run)
    assert run.states.steps()[-1] == 2
    assert [(event["step"], event["final"]) for event in events(run, "checkpoint")] == [(2, False)]
    # Those that were open when the stop came are finished and kept; nothing new began.
    open_then = [key for key in started(run) if key.step == 3]
    kept = (run.journals / "step-3.jsonl").read_bytes().count(b"\n")
    assert 0 < kept == len(open_then) <= run.concurrency
    assert agent.open == 0


async def test_a_stop_does_not_wait_for_ever(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "STOP_GRACE_S", 0.05)
    run = make_run(checkpoints={"checkpoint_save_freq": 50}, advanced={"max_steps": 50})
    working = asyncio.create_task(train(run))
    await until(lambda: run.states.steps() == [0, 1])
    run.run_attempt.hold = asyncio.Event()
    await until(lambda: run.run_attempt.open == run.concurrency)
    run.stop.request("a user asked for it")
    with pytest.raises(StoppedError):
        await asyncio.wait_for(working, 300)
    assert run.run_attempt.open == 0
    assert [(event["step"], event["final"]) for event in events(run, "checkpoint")][-1][1] is True


@pytest.mark.parametrize("staleness", [0, 1])
async def test_a_damaged_state_falls_back_to_the_one_before(make_run: MakeRun, staleness: int) -> None:
    settings = {"max_steps": 4, "max_staleness": staleness}
    calm = make_run("calm", advanced=settings)
    await train(calm)
    run = make_run("damaged", advanced=settings)
    await train(run)
    victim = run.work_dir / "state/step-4/engine/engine.json"
    victim.write_text(victim.read_text()[:-3])
    again = make_run("damaged", advanced=settings)
    await train(again)
    assert again.engine.adapter == calm.engine.adapter
    assert any("resumed after step 3/4" in event["message"] for event in events(again, "log"))
    assert run.states.steps() == [3, 4]


async def test_a_run_never_begins_again_unnoticed(make_run: MakeRun) -> None:
    run = make_run()
    await train(run)
    for step in (3, 4):
        (run.work_dir / f"state/step-{step}/run.json").unlink()
    with pytest.raises(StateError, match=r"run\.json is missing"):
        await train(make_run())
    for path in (run.work_dir / "state").iterdir():
        path.rename(run.work_dir / path.name)
    with pytest.raises(StateError, match="no saved state"):
        await train(make_run())


@pytest.mark.parametrize("change", [{"advanced": {"kl_coef": 0.1}}, {"training": {"lr": 2e-3}}])
async def test_a_state_of_other_settings_is_refused(make_run: MakeRun, change: dict[str, Any]) -> None:
    await train(make_run())
    with pytest.raises(StateError, match="other settings"):
        await train(make_run(**change))


async def test_a_state_of_another_dataset_is_refused(make_run: MakeRun) -> None:
    await train(make_run(advanced={"validation_rows": 0}))
    with pytest.raises(StateError, match="other rows"):
        await train(make_run(advanced={"validation_rows": 0}, rows=24))


async def test_a_finished_run_that_is_started_again_does_nothing(make_run: MakeRun) -> None:
    run = make_run()
    await train(run)
    before = len(started(run))
    await train(make_run())
    assert len(started(run)) == before


async def test_a_few_telling_samples_are_shown(make_run: MakeRun) -> None:
    run = make_run(advanced={"max_steps": 1, "validation_rows": 0})
    run.run_attempt.fate = lambda key, dice: ("graded", False, float(key.sample_index))
    await train(run)
    shown = events(run, "sample")
    assert [(event["sample_index"], event["reward"], event["advantage"]) for event in shown] == [
        (0, 0.0, -1.5),
        (3, 3.0, 1.5),
    ] * 2
    trajectory = json.loads(run.report._events.blobs[shown[0]["blob"]])
    assert trajectory["rollout_id"] == shown[0]["rollout_id"]
    assert trajectory["advantage"] == -1.5


async def test_the_log_is_not_flooded_with_invalid_attempts(make_run: MakeRun) -> None:
    run = make_run(advanced={"max_steps": 1, "validation_rows": 0, "refill_limit": 0})
    run.run_attempt.fate = lambda key, dice: ("invalid", True, None)
    with pytest.raises(UnhealthyRunError, match="12 of 12 samples of the last step"):
        await train(run)
    complaints = [event["message"] for event in events(run, "log") if "invalid" in event["message"]]
    assert len(started(run)) == 36
    assert len(complaints) == 10
    assert "not logged" in complaints[-1]

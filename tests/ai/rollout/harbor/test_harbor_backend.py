"""One rollout through the backend, on a queue that runs nothing: reports, states, cancellation, and what stays."""

import asyncio
import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from osmosis_ai.rollout import (
    ExecutionResult,
    RolloutContext,
    RolloutErrorCategory,
    RolloutSample,
    RolloutStatus,
)
from osmosis_ai.rollout.backend.harbor.backend import CredentialScrubError
from osmosis_ai.rollout.backend.harbor.trial import PendingTrial

type MakeBench = Callable[..., Any]

KEY = "sk-0123456789"


@pytest.fixture(autouse=True)
def rollout() -> Any:
    with RolloutContext("http://policy.example/v1", KEY, "r1") as current:
        yield current


async def started(bench: Any, **request: Any) -> asyncio.Task[None]:
    """The rollout's task once its trial was submitted."""
    bench.queue.submitted.clear()
    task = asyncio.create_task(bench.run(**request))
    async with asyncio.timeout(10):
        await bench.queue.submitted.wait()
    return task


async def test_a_rewarded_rollout(bench: MakeBench) -> None:
    b = bench()
    seen: list[Any] = []

    async def play(config: Any) -> Any:
        await b.queue.fire("start", config)
        seen.append((b.backend.rollout_status("r1"), b.backend.running, b.backend.queued()))
        await b.queue.fire("verification-start", config)
        seen.append((b.backend.rollout_status("r1"), [name for name, _ in b.reports.heard]))
        await b.queue.fire("end", config)
        b.leave("artifacts/logs/artifacts/out.txt", "made")
        b.leave("trial.log", f"log with {KEY}")
        return b.queue.result

    b.queue.script = play
    await b.run()
    assert seen == [({"status": "running"}, 1, 0), ({"status": "grading"}, ["completion"])]
    (completion,), (graded,) = b.reports.of("completion"), b.reports.of("grader")
    assert completion.status == graded.status == RolloutStatus.SUCCESS
    assert completion.sample.reward is None
    assert (graded.sample.reward, graded.sample.label) == (1.0, "42")
    assert graded.extra_fields is None
    assert b.backend.rollout_status("r1") == {"status": "success", "reward": 1.0, "err_message": None}
    assert (b.backend.pending, b.backend.running) == ({}, 0)
    assert b.kept() == {
        "artifacts/logs/artifacts/out.txt": "made",
        "logs/trial.log": "log with [REDACTED]",
    }
    assert not b.trial_dir().exists()
    assert not (b.backend.rollouts_dir / "r1").exists()


async def test_a_controller_that_polls_hears_how_far_the_rollout_is(bench: MakeBench) -> None:
    heard: list[str] = []
    with RolloutContext(progress=SimpleNamespace(status_changed=heard.append)):
        await bench().run()
    assert heard == ["running", "grading"]


async def test_the_end_of_the_server_removes_copies_and_leaves_kept_trials(
    bench: MakeBench, trial: Any
) -> None:
    b = bench(trials_dir=None)
    root = b.backend.rollouts_dir.parent
    b.queue.result = trial.result(verifier_result=SimpleNamespace(rewards={"reward": "x"}))
    b.leave("trial.log", "log")
    await b.run()
    await b.backend.shutdown()
    assert [path.name for path in root.rglob("*")] == ["trials", "trial-r1", "trial.log"]
    assert b.trial_dir().is_relative_to(root)
    shutil.rmtree(b.trial_dir())
    await b.backend.shutdown()
    assert not root.exists()


async def test_a_failure_keeps_the_trial_and_its_artifacts(bench: MakeBench, trial: Any) -> None:
    b = bench()
    b.queue.result = trial.result(
        verifier=None, verifier_result=None, exception_info=trial.exception(message=f"no {KEY}")
    )
    b.leave("artifacts/logs/artifacts/out.txt", "made")
    await b.run()
    (completion,), (graded,) = b.reports.of("completion"), b.reports.of("grader")
    for result in (completion, graded):
        assert (result.status, result.err_category) == (
            RolloutStatus.FAILURE,
            RolloutErrorCategory.AGENT_ERROR,
        )
        assert result.err_message == "RuntimeError: no [REDACTED]"
        assert result.extra_fields == {
            "backend": "harbor",
            "phase": "agent",
            "harbor_exception_type": "RuntimeError",
            "category": "agent_error",
            "timings_sec": {"environment_setup": 1.0, "agent_setup": 1.0, "agent": 2.0, "total": 6.12},
        }
    assert b.trial_dir().exists()
    assert "artifacts/logs/artifacts/out.txt" in b.kept()
    assert b.backend.rollout_status("r1")["status"] == "failure"


async def test_a_workflow_that_failed_is_no_score(bench: MakeBench, trial: Any) -> None:
    b = bench()
    metadata = {"status": "failure", "err_message": "division by zero", "output": None, "sample": None}
    b.queue.result = trial.result(
        agent_result=SimpleNamespace(metadata=metadata),
        verifier_result=SimpleNamespace(rewards={"reward": 0.0}),
    )
    await b.run()
    for result in (*b.reports.of("completion"), *b.reports.of("grader")):
        assert (result.status, result.err_message, result.sample) == ("failure", "division by zero", None)


async def test_a_completion_that_was_not_delivered_is_sent_again(bench: MakeBench) -> None:
    b = bench()
    b.reports.refuse = 1
    b.leave("trial.log", "log")
    await b.run()
    assert [name for name, _ in b.reports.heard] == ["completion", "completion", "grader"]
    first, second = b.reports.of("completion")
    assert first is second
    assert b.kept() == {"logs/trial.log": "log"}


async def test_reports_that_never_arrive_do_not_keep_files_from_being_kept(bench: MakeBench) -> None:
    b = bench()
    b.reports.refuse = 9
    b.leave("trial.log", "log")
    await b.run()
    assert b.kept() == {"logs/trial.log": "log"}
    assert b.backend.rollout_status("r1")["status"] == "success"


async def test_a_setup_that_fails_tells_both_channels_the_same(bench: MakeBench) -> None:
    b = bench(task_mode="dataset")
    await b.run(metadata={"harbor_task_id": "nowhere"})
    (completion,), (graded,) = b.reports.of("completion"), b.reports.of("grader")
    assert completion is graded
    assert completion.err_category == RolloutErrorCategory.VALIDATION_ERROR
    assert completion.extra_fields["phase"] == "setup"
    assert completion.extra_fields["harbor_exception_type"] == "ValueError"
    assert b.queue.configs == []
    assert b.backend.rollout_status("r1")["status"] == "failure"


@pytest.mark.parametrize("delivered", [[], ["completion"], ["completion", "grader"]])
async def test_a_trial_that_breaks_reports_what_is_still_open(bench: MakeBench, delivered: list[str]) -> None:
    b = bench()

    async def play(config: Any) -> Any:
        await b.queue.fire("start", config)
        if delivered:
            await b.queue.fire("verification-start", config)
        if len(delivered) == 2:
            await b.queue.fire("end", config)
        raise TimeoutError(f"the daemon with {KEY} is away")

    b.queue.script = play
    await b.run()
    failed = [name for name, result in b.reports.heard if result.status == RolloutStatus.FAILURE]
    assert failed == [name for name in ("completion", "grader") if name not in delivered]
    for _, result in b.reports.heard[len(delivered) :]:
        assert result.err_category == RolloutErrorCategory.TIMEOUT
        assert result.err_message == "the daemon with [REDACTED] is away"
        assert result.extra_fields["harbor_exception_type"] == "TimeoutError"


async def test_an_end_without_an_event_is_reported_from_the_result(bench: MakeBench, trial: Any) -> None:
    b = bench()

    async def silent(config: Any) -> Any:
        return trial.result()

    b.queue.script = silent
    await b.run()
    assert [name for name, _ in b.reports.heard] == ["completion", "grader"]
    assert b.reports.of("grader")[0].sample.reward == 1.0


@pytest.mark.parametrize(
    "rewards", [{"reward": "x"}, {"reward": None}, {"reward": float("nan")}, {"reward": [1]}]
)
async def test_rewards_that_are_no_number_fail(bench: MakeBench, trial: Any, rewards: Any) -> None:
    b = bench()
    b.queue.result = trial.result(verifier_result=SimpleNamespace(rewards=rewards))
    await b.run()
    (graded,) = b.reports.of("grader")
    assert (graded.status, graded.err_category) == ("failure", "validation_error")
    assert graded.extra_fields["phase"] == "grading"
    assert graded.sample.reward is None
    assert b.reports.of("completion")[0].status == RolloutStatus.SUCCESS


@pytest.mark.parametrize(("reward", "expected"), [("0.5", 0.5), (True, 1.0), (0, 0.0)])
async def test_rewards_are_read_as_numbers(
    bench: MakeBench, trial: Any, reward: Any, expected: float
) -> None:
    b = bench()
    b.queue.result = trial.result(verifier_result=SimpleNamespace(rewards={"other": 9, "reward": reward}))
    await b.run()
    assert b.reports.of("grader")[0].sample.reward == expected


async def test_without_a_reward_dimension_only_a_rewarded_sample_succeeds(
    bench: MakeBench, trial: Any, caplog: pytest.LogCaptureFixture
) -> None:
    b = bench()
    b.queue.result = trial.result(verifier_result=SimpleNamespace(rewards={}))
    await b.run()
    assert "Harbor verifier returned empty rewards for rollout r1" in caplog.text
    assert b.reports.of("grader")[0].err_category == RolloutErrorCategory.VALIDATION_ERROR
    sample = RolloutSample(messages=[{"role": "user", "content": "x"}], reward=0.25)
    b.backend.primary_sample = lambda event, rollout_id, pending: sample
    await b.run("r2")
    assert b.reports.of("grader")[1].sample.reward == 0.25


async def test_what_wins_when_several_things_went_wrong(bench: MakeBench, trial: Any) -> None:
    backend = bench().backend
    pending = PendingTrial(None, None)  # type: ignore[arg-type]

    def outcome(**given: Any) -> ExecutionResult:
        event = SimpleNamespace(config=None, result=trial.result(**given))
        return backend.grader_outcome(event, "r1", pending)

    early, late = trial.exception("AgentTimeoutError", at=3), trial.exception("VerifierTimeoutError", at=5.5)
    assert outcome(exception_info=early).extra_fields["phase"] == "agent"
    assert outcome(exception_info=early).err_category == RolloutErrorCategory.AGENT_ERROR
    assert outcome(exception_info=late).status == RolloutStatus.SUCCESS
    failed = outcome(exception_info=late, verifier_result=None)
    assert (failed.err_category, failed.extra_fields["phase"]) == ("timeout", "verifier")
    assert failed.sample is not None
    missing = outcome(verifier=None, verifier_result=None)
    assert missing.err_category == RolloutErrorCategory.VALIDATION_ERROR
    assert "no reward source" in missing.err_message


async def test_samples_come_from_the_result_of_the_agent_program(bench: MakeBench, trial: Any) -> None:
    backend = bench().backend
    pending = PendingTrial(None, None, label="42")  # type: ignore[arg-type]

    def sample(metadata: Any, **given: Any) -> RolloutSample | None:
        result = trial.result(agent_result=SimpleNamespace(metadata=metadata), **given)
        return backend.primary_sample(SimpleNamespace(result=result), "r1", pending)

    totals = {"compute_token_cost_totals": lambda: (10, None, 5, 0.5)}
    full = {
        "messages": [{"role": "user", "content": "x"}],
        "trajectory_messages": None,
        "metrics": {"cost_usd": 9.0},
    }
    got = sample({"status": "success", "sample": full, "output": trial.output()}, **totals)
    assert got is not None
    assert (got.label, got.trajectory_messages) == ("42", None)
    assert got.metrics == {"n_input_tokens": 10, "n_output_tokens": 5, "cost_usd": 9.0}
    own = sample({"sample": {**full, "label": "own"}})
    assert own is not None
    assert (own.label, own.metrics) == ("own", {"cost_usd": 9.0})
    projected = sample({"output": {**trial.output("7"), "metrics": {"n_input_tokens": 1.0}}}, **totals)
    assert projected is not None
    assert projected.messages == [{"role": "assistant", "content": "7"}]
    assert projected.metrics == {"n_input_tokens": 1.0, "n_output_tokens": 5, "cost_usd": 0.5}
    assert sample({"output": {"messages": None}}) is None
    assert sample(None) is None


async def test_a_broken_result_of_the_agent_program_fails(bench: MakeBench, trial: Any) -> None:
    b = bench()
    b.queue.result = trial.result(agent_result=SimpleNamespace(metadata={"output": {"messages": "text"}}))
    await b.run()
    for result in (*b.reports.of("completion"), *b.reports.of("grader")):
        assert (result.status, result.err_category) == ("failure", "validation_error")


class TestNativeAgents:
    CONVERSATION = '{"steps": [{"source": "user", "message": "6 x 7"}, {"source": "agent", "message": "42"}]}'

    @pytest.mark.parametrize("path", ["agent/trajectory.json", "steps/one/agent/trajectory.json"])
    async def test_the_one_trajectory_is_the_sample(self, bench: MakeBench, trial: Any, path: str) -> None:
        b = bench(agent="terminus-2")
        b.queue.result = trial.result(agent_result=SimpleNamespace(metadata={"episodes": 1}))
        b.leave(path, self.CONVERSATION)
        await b.run()
        (graded,) = b.reports.of("grader")
        assert graded.sample.messages[-1] == {"role": "assistant", "content": "42"}
        assert (graded.sample.reward, graded.sample.label) == (1.0, "42")
        assert not b.trial_dir().exists()

    @pytest.mark.parametrize(
        "files",
        [
            {"agent/trajectory.json": CONVERSATION, "steps/one/agent/trajectory.json": CONVERSATION},
            {"agent/trajectory.json": "{"},
            {"agent/trajectory.json": "[]"},
            {},
        ],
    )
    async def test_anything_else_fails_a_trainable_agent(
        self, bench: MakeBench, trial: Any, files: dict[str, str]
    ) -> None:
        b = bench(agent="mini-swe-agent")
        for path, text in files.items():
            b.leave(path, text)
        b.leave("trial.log", "log")
        await b.run()
        (graded,) = b.reports.of("grader")
        assert (graded.status, graded.err_category, graded.sample) == ("failure", "validation_error", None)
        assert b.trial_dir().exists()

    async def test_a_linked_trajectory_is_none(self, bench: MakeBench, tmp_path: Path) -> None:
        b = bench(agent="terminus-2")
        (tmp_path / "other.json").write_text(self.CONVERSATION)
        (b.trial_dir() / "agent").mkdir(parents=True)
        (b.trial_dir() / "agent" / "trajectory.json").symlink_to(tmp_path / "other.json")
        await b.run()
        assert b.reports.of("grader")[0].sample is None

    async def test_the_oracle_needs_no_trajectory(self, bench: MakeBench) -> None:
        b = bench(agent="oracle")
        await b.run()
        (graded,) = b.reports.of("grader")
        assert (graded.status, graded.sample.messages, graded.sample.trajectory_messages) == (
            "success",
            [],
            None,
        )
        assert graded.sample.reward == 1.0

    async def test_a_trial_with_an_unusable_trajectory_is_kept(self, bench: MakeBench) -> None:
        b = bench(agent="oracle")
        b.leave("agent/trajectory.json", "{")
        await b.run()
        assert b.reports.of("grader")[0].status == RolloutStatus.SUCCESS
        assert b.trial_dir().exists()


class TestCancellation:
    async def hold(self, b: Any, *, start: bool) -> None:
        async def play(config: Any) -> Any:
            if start:
                await b.queue.fire("start", config)
            b.leave("trial.log", "log", config.trial_name.removeprefix("trial-"))
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                await b.queue.fire("end", config)
                raise

        b.queue.script = play

    @pytest.mark.parametrize("start", [False, True])
    async def test_a_cancelled_rollout_reports_and_leaves_nothing(
        self, bench: MakeBench, start: bool
    ) -> None:
        b = bench()
        await self.hold(b, start=start)
        task = await started(b)
        assert b.backend.rollout_status("r1") == {"status": "running" if start else "queued"}
        expected = "cancelled_running" if start else "cancelled_queued"
        assert b.backend.cancel_rollouts(ids=["r1", "other"]) == {"r1": expected, "other": "not_found"}
        assert b.backend.cancel_rollouts(all=True) == {"r1": expected}
        await task
        assert b.reports.heard == []
        assert b.backend.rollout_status("r1") == {"status": "cancelled", "reward": None, "err_message": None}
        assert not b.trial_dir().exists()
        assert not (b.backend.rollouts_dir / "r1").exists()
        assert b.kept() == {}
        assert (b.backend.running, b.backend.queued()) == (0, 0)
        assert b.backend.cancel_rollouts(ids=["r1"]) == {"r1": "not_found"}

    async def test_prefixes_and_all(self, bench: MakeBench) -> None:
        b = bench()
        await self.hold(b, start=True)
        tasks = [await started(b, rollout_id=name) for name in ("a-1", "a-2", "b-1")]
        assert b.backend.cancel_rollouts(prefix="a-") == dict.fromkeys(("a-1", "a-2"), "cancelled_running")
        await asyncio.gather(*tasks[:2])
        assert b.backend.cancel_rollouts(prefix="") == {"b-1": "cancelled_running"}
        await tasks[2]
        assert b.backend.cancel_rollouts(all=True) == b.backend.cancel_rollouts(ids=[]) == {}

    async def test_one_without_a_trial_is_not_found(self, bench: MakeBench) -> None:
        b = bench()
        found, fetching = asyncio.Event(), asyncio.Event()

        async def slow(request: Any) -> Any:
            fetching.set()
            await found.wait()
            return b.backend.select_task(request)

        b.backend.resolve_task = slow
        task = asyncio.create_task(b.run())
        await fetching.wait()
        assert b.backend.cancel_rollouts(all=True) == {"r1": "not_found"}
        found.set()
        await task
        assert b.reports.of("grader")[0].status == RolloutStatus.SUCCESS

    async def test_a_cancelled_server_task_stays_cancelled(self, bench: MakeBench) -> None:
        b = bench()
        await self.hold(b, start=True)
        task = await started(b)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert b.backend.rollout_status("r1")["status"] == "cancelled"
        assert b.reports.heard == []
        assert not b.trial_dir().exists()
        assert not (b.backend.rollouts_dir / "r1").exists()

    async def test_a_queue_that_swallows_the_cancellation(self, bench: MakeBench, trial: Any) -> None:
        b = bench()

        async def play(config: Any) -> Any:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            await b.queue.fire("end", config)
            return trial.result()

        b.queue.script = play
        task = await started(b)
        b.backend.cancel_rollouts(all=True)
        await task
        assert b.reports.heard == []
        assert b.backend.rollout_status("r1")["status"] == "cancelled"


class TestAdmission:
    async def test_the_depth_of_the_queue(self, bench: MakeBench) -> None:
        b = bench(max_queue_depth=1)
        gate = asyncio.Event()

        async def play(config: Any) -> Any:
            await gate.wait()
            return await b.queue.play(config)

        b.queue.script = play
        assert b.backend.has_capacity()
        task = await started(b)
        assert not b.backend.has_capacity()
        assert b.backend.health() | {"agent": ""} == {
            "status": "ok",
            "backend": "harbor",
            "agent": "",
            "in_flight": 1,
            "running": 0,
            "queued": 1,
            "max_queue_depth": 1,
        }
        await b.backend.on_trial_started(SimpleNamespace(config=SimpleNamespace(trial_name="trial-r1")))
        assert b.backend.has_capacity()
        gate.set()
        await task
        assert b.backend.running == 0

    async def test_a_second_rollout_of_a_running_id_is_dropped(
        self, bench: MakeBench, caplog: pytest.LogCaptureFixture
    ) -> None:
        b = bench()
        gate = asyncio.Event()

        async def play(config: Any) -> Any:
            await gate.wait()
            return await b.queue.play(config)

        b.queue.script = play
        task = await started(b)
        await b.run()
        assert "is running already" in caplog.text
        gate.set()
        await task
        assert [name for name, _ in b.reports.heard] == ["completion", "grader"]

    async def test_trials_of_others_are_none_of_ours(self, bench: MakeBench) -> None:
        b = bench()
        other = SimpleNamespace(config=SimpleNamespace(trial_name="someone-elses"), result=b.queue.result)
        for hook in (b.backend.on_trial_started, b.backend.on_verification_start, b.backend.on_trial_end):
            await hook(other)
        assert b.backend.running == 0

    async def test_an_id_that_looks_like_a_prewarming_is_a_rollout(self, bench: MakeBench) -> None:
        b = bench()
        await b.run("prewarm-abc")
        assert b.reports.of("grader")[0].status == RolloutStatus.SUCCESS


async def test_what_a_repeated_id_left_is_gone(bench: MakeBench, trial: Any) -> None:
    b = bench()
    b.queue.result = trial.result(verifier_result=SimpleNamespace(rewards={"reward": "x"}))
    b.leave("verifier/reward.json", "old")
    await b.run()
    assert b.trial_dir().exists()
    seen: list[bool] = []

    async def play(config: Any) -> Any:
        seen.append(b.trial_dir().exists())
        return await b.queue.play(config)

    b.queue.script = play
    await b.run()
    assert seen == [False]


async def test_files_with_a_key_in_them_are_not_kept(
    bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    b = bench()
    b.leave("trial.log", "log")

    def refuse(rollout_id: str, api_key: str | None) -> None:
        assert (rollout_id, api_key) == ("r1", KEY)
        raise CredentialScrubError("a credential may remain")

    b.backend.scrub_trial_credentials = refuse
    with pytest.raises(CredentialScrubError):
        await b.run()
    assert [name for name, _ in b.reports.heard] == ["completion", "grader"]
    assert b.kept() == {}
    assert not (b.backend.rollouts_dir / "r1").exists()


@pytest.mark.parametrize("what", ["keep_artifacts", "retain_trial_logs"])
async def test_a_trial_whose_files_could_not_be_kept_stays(
    bench: MakeBench, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    b = bench()
    b.leave("trial.log", "log")
    monkeypatch.setattr(f"osmosis_ai.rollout.backend.harbor.backend.{what}", lambda *args: False)
    await b.run()
    assert b.reports.of("grader")[0].status == RolloutStatus.SUCCESS
    assert b.trial_dir().exists()


async def test_successful_trials_can_be_kept(bench: MakeBench) -> None:
    b = bench(cleanup_successful_trials=False)
    b.leave("trial.log", "log")
    await b.run()
    assert b.trial_dir().exists()
    assert not (b.backend.rollouts_dir / "r1").exists()


class TestPrewarming:
    async def test_the_template_is_prepared_once(self, bench: MakeBench, trial: Any) -> None:
        b = bench()
        seen: list[Any] = []

        async def play(config: Any) -> Any:
            await b.queue.fire("start", config)
            rollout_id = config.trial_name.removeprefix("trial-")
            b.leave("trial.log", "log", rollout_id)
            seen.append((b.backend.prewarm_trials == {config.trial_name}, b.backend.running, rollout_id))
            await b.queue.fire("end", config)
            return trial.result(verifier=None)

        b.queue.script = play
        async with b.backend.prewarm_lifespan()(None):
            ((listed, running, rollout_id),) = seen
        assert (listed, running) == (True, 0)
        assert b.backend.prewarm_trials == set()
        assert not b.trial_dir(rollout_id).exists()
        assert not (b.backend.rollouts_dir / rollout_id).exists()

    async def test_directories_stay_where_nothing_is_cleaned(self, bench: MakeBench) -> None:
        b = bench(cleanup_successful_trials=False)
        await b.backend.prewarm()
        assert [path.name for path in b.backend.rollouts_dir.glob("*/*")] == ["sum"]

    async def test_a_dataset_needs_ids(self, bench: MakeBench, task: Path) -> None:
        b = bench(task_mode="dataset", tasks_dir=task.parent)
        with pytest.raises(ValueError, match="requires task ids"):
            await b.backend.prewarm()
        await b.backend.prewarm(["sum"])
        assert len(b.queue.configs) == 1

    async def test_failures_are_named_together(self, bench: MakeBench, task: Path, trial: Any) -> None:
        b = bench(task_mode="dataset", tasks_dir=task.parent)

        async def play(config: Any) -> Any:
            return trial.result(exception_info=trial.exception("BuildError", "no image"))

        b.queue.script = play
        with pytest.raises(RuntimeError, match="sum: BuildError: no image; nowhere: unknown harbor task id"):
            await b.backend.prewarm(["sum", "nowhere"])
        assert b.backend.prewarm_trials == set()
        assert list(b.backend.rollouts_dir.glob("*")) == []

"""LocalBackend: outcomes, deadlines, concurrency."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from osmosis_ai.rollout import (
    AgentWorkflow,
    AgentWorkflowConfig,
    AgentWorkflowContext,
    AgentWorkflowOutput,
    ConcurrencyConfig,
    ExecutionRequest,
    ExecutionResult,
    Grader,
    GraderConfig,
    GraderContext,
    LocalBackend,
    RolloutContext,
    RolloutSample,
    SampleSource,
    get_rollout_context,
)
from osmosis_ai.rollout.utils import deadline

ANSWER = [{"role": "assistant", "content": "42"}]


def workflow(run: Callable[[AgentWorkflowContext], Any]) -> type[AgentWorkflow]:
    class Workflow(AgentWorkflow):
        async def run(self, ctx: AgentWorkflowContext) -> Any:
            return await run(ctx)

    return Workflow


def grader(grade: Callable[[GraderContext], Any]) -> type[Grader]:
    class MyGrader(Grader):
        async def grade(self, ctx: GraderContext) -> None:
            await grade(ctx)

    return MyGrader


async def answers(ctx: AgentWorkflowContext) -> Any:
    return ANSWER


async def rewards(ctx: GraderContext) -> None:
    ctx.set_reward(1.0)


async def execute(backend: LocalBackend, *, grading: bool = True, **request: Any) -> list[ExecutionResult]:
    results: list[ExecutionResult] = []

    async def keep(result: ExecutionResult) -> None:
        results.append(result)

    await backend.execute(
        ExecutionRequest(**{"id": "r1", "prompt": [{"role": "user", "content": "6*7"}], **request}),
        keep,
        keep if grading else None,
    )
    return results


async def test_returned_messages_are_graded() -> None:
    async def run(ctx: AgentWorkflowContext) -> AgentWorkflowOutput:
        return AgentWorkflowOutput(messages=ANSWER, metrics={"turns": 2}, info={"secret": 1})

    backend = LocalBackend(workflow=workflow(run), grader=grader(rewards))
    completion, graded = await execute(backend, label="42")
    assert completion.status == "success"
    assert graded.sample is not None
    assert graded.sample.reward == 1.0
    assert (graded.sample.messages, graded.sample.label, graded.sample.metrics) == (
        ANSWER,
        "42",
        {"turns": 2.0},
    )


async def test_registered_source_is_used_and_an_explicit_value_wins() -> None:
    class Source(SampleSource):
        async def get_sample(self) -> RolloutSample:
            return RolloutSample(messages=[{"from": "source"}])

    def run_with(value: Any) -> type[AgentWorkflow]:
        async def run(ctx: AgentWorkflowContext) -> Any:
            rollout = get_rollout_context()
            assert rollout is not None
            rollout.set_sample_source(Source())
            return value

        return workflow(run)

    for value, expected in ((None, [{"from": "source"}]), (ANSWER, ANSWER)):
        (completion,) = await execute(LocalBackend(workflow=run_with(value)), grading=False)
        assert completion.sample is not None
        assert completion.sample.messages == expected
    (completion,) = await execute(LocalBackend(workflow=run_with(AgentWorkflowOutput())), grading=False)
    assert (completion.status, completion.sample) == ("success", None)


@pytest.mark.parametrize(
    ("label", "metadata", "graded"),
    [(None, None, False), ("", None, True), (None, {}, True), ("x", None, True)],
)
async def test_grading_needs_a_label_or_metadata(label: Any, metadata: Any, graded: bool) -> None:
    backend = LocalBackend(workflow=workflow(answers), grader=grader(rewards))
    _, result = await execute(backend, label=label, metadata=metadata)
    assert result.status == ("success" if graded else "failure")
    if not graded:
        assert result == ExecutionResult(status="failure")


async def test_without_a_grader_the_open_channel_gets_a_bare_failure() -> None:
    _, result = await execute(LocalBackend(workflow=workflow(answers)), label="x")
    assert result == ExecutionResult(status="failure")


@pytest.mark.parametrize(
    ("error", "category"),
    [
        (TimeoutError("late"), "timeout"),
        (ValueError("bad"), "validation_error"),
        (AssertionError("no"), "validation_error"),
        (RuntimeError("boom"), "agent_error"),
        (KeyError("expected_answer"), "agent_error"),
        (RuntimeError(), "agent_error"),
    ],
)
async def test_failures_are_categorised(error: Exception, category: str) -> None:
    async def fail(ctx: Any) -> None:
        raise error

    completion, after = await execute(
        LocalBackend(workflow=workflow(fail), grader=grader(rewards)), label="x"
    )
    assert (completion.status, completion.err_message, completion.err_category) == (
        "failure",
        str(error),
        category,
    )
    assert after == ExecutionResult(status="failure")

    _, graded = await execute(LocalBackend(workflow=workflow(answers), grader=grader(fail)), label="x")
    assert (graded.status, graded.err_message, graded.err_category) == ("failure", str(error), category)
    assert graded.sample is not None


async def test_a_run_that_is_not_async_is_a_validation_error() -> None:
    class Sync(AgentWorkflow):
        def run(self, ctx: AgentWorkflowContext) -> None:  # type: ignore[override]
            return None

    (completion,) = await execute(LocalBackend(workflow=Sync), grading=False)
    assert completion.err_category == "validation_error"


async def test_a_broken_workflow_constructor_escapes_and_a_grader_constructor_does_not() -> None:
    class BrokenWorkflow(AgentWorkflow):
        def __init__(self, config: Any) -> None:
            raise RuntimeError("setup")

        async def run(self, ctx: Any) -> None: ...

    class BrokenGrader(Grader):
        def __init__(self, config: Any) -> None:
            raise RuntimeError("setup")

        async def grade(self, ctx: Any) -> None: ...

    with pytest.raises(RuntimeError, match="setup"):
        await execute(LocalBackend(workflow=BrokenWorkflow))
    _, graded = await execute(LocalBackend(workflow=workflow(answers), grader=BrokenGrader), label="x")
    assert (graded.status, graded.err_message) == ("failure", "setup")


async def test_a_grader_must_reward_or_remove() -> None:
    async def nothing(ctx: GraderContext) -> None: ...

    async def remove(ctx: GraderContext) -> None:
        assert ctx.sample is not None
        ctx.sample.remove_sample = True

    _, graded = await execute(LocalBackend(workflow=workflow(answers), grader=grader(nothing)), label="x")
    assert "Sample has no reward after grading" in (graded.err_message or "")
    _, graded = await execute(LocalBackend(workflow=workflow(answers), grader=grader(remove)), label="x")
    assert graded.status == "success"


@pytest.mark.parametrize("reward", [float("nan"), float("inf")])
@pytest.mark.parametrize("assigned", [True, False])
async def test_a_reward_that_is_no_number_is_refused(reward: float, assigned: bool) -> None:
    async def grade(ctx: GraderContext) -> None:
        assert ctx.sample is not None
        if assigned:
            ctx.sample.reward = reward
        else:
            ctx.set_reward(reward)

    _, graded = await execute(LocalBackend(workflow=workflow(answers), grader=grader(grade)), label="x")
    assert (graded.status, graded.err_category) == ("failure", "validation_error")
    assert "Input should be a finite number" in (graded.err_message or "")


@pytest.mark.parametrize("timeout", [0.05, 0.0, -1.0])
async def test_workflow_deadline(timeout: float) -> None:
    async def forever(ctx: Any) -> None:
        await asyncio.Event().wait()

    backend = LocalBackend(workflow=workflow(forever))
    (completion,) = await execute(backend, grading=False, agent_timeout_sec=timeout)
    assert completion.err_category == "timeout"
    assert completion.err_message == f"workflow exceeded its {timeout}s deadline"
    assert backend.limiter.snapshot()["running"] == 0


async def test_code_that_outlives_its_deadline_has_timed_out_whatever_it_returns() -> None:
    async def swallows(ctx: Any) -> Any:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return ANSWER

    async def blocks(ctx: Any) -> Any:
        time.sleep(0.05)  # noqa: ASYNC251 - blocking the loop is the point
        return ANSWER

    async def fails_late(ctx: Any) -> Any:
        try:
            await asyncio.Event().wait()
        finally:
            raise RuntimeError("cleanup failed")

    for run in (swallows, blocks, fails_late):
        (completion,) = await execute(
            LocalBackend(workflow=workflow(run)), grading=False, agent_timeout_sec=0.02
        )
        assert (completion.status, completion.err_category) == ("failure", "timeout"), run.__name__


async def test_grader_deadline_is_its_own() -> None:
    async def forever(ctx: Any) -> None:
        await asyncio.Event().wait()

    backend = LocalBackend(workflow=workflow(answers), grader=grader(forever))
    completion, graded = await execute(backend, label="x", agent_timeout_sec=30, grader_timeout_sec=0.05)
    assert completion.status == "success"
    assert (graded.err_category, graded.err_message) == ("timeout", "grader exceeded its 0.05s deadline")


async def test_a_timer_that_is_early_ends_the_budget_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    async def forever(ctx: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(deadline, "time", SimpleNamespace(monotonic=lambda: 0.0))
    backend = LocalBackend(workflow=workflow(forever))
    (completion,) = await execute(backend, grading=False, agent_timeout_sec=0.05)
    assert (completion.status, completion.err_category) == ("failure", "timeout")


async def test_waiting_for_a_slot_counts_against_the_deadline(wait_until: Callable[..., Any]) -> None:
    config = AgentWorkflowConfig(name="w", concurrency=ConcurrencyConfig(max_concurrent=1))
    backend = LocalBackend(workflow=workflow(answers), workflow_config=config)
    async with backend.limiter.acquire():
        waiting = asyncio.create_task(execute(backend, grading=False, agent_timeout_sec=0.1))
        await wait_until(lambda: backend.limiter.queued)
        assert backend.health()["concurrency"] == {"max_concurrent": 1, "queued": 1, "running": 1}
        started = time.monotonic()
        await wait_until(lambda: time.monotonic() - started > 0.15)
    (completion,) = await waiting
    assert completion.err_category == "timeout"
    assert "queued" in (completion.err_message or "")


async def test_cancellation_from_outside_is_no_outcome_and_frees_the_slot() -> None:
    started = asyncio.Event()

    async def forever(ctx: Any) -> None:
        started.set()
        await asyncio.Event().wait()

    backend = LocalBackend(workflow=workflow(forever))
    task = asyncio.create_task(execute(backend, agent_timeout_sec=60))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert backend.limiter.snapshot() == {"max_concurrent": 4, "queued": 0, "running": 0}


def test_default_concurrency() -> None:
    assert LocalBackend(workflow=workflow(answers)).max_concurrency == 4
    unlimited = LocalBackend(workflow=workflow(answers), workflow_config=AgentWorkflowConfig(name="w"))
    assert (unlimited.max_concurrency, unlimited.limiter.max_concurrent) == (0, None)


async def test_what_workflow_and_grader_are_given(artifact_root: Path) -> None:
    seen: dict[str, Any] = {}
    config = AgentWorkflowConfig(name="w", notes=[])  # type: ignore[call-arg]
    grader_config = GraderConfig(name="g")
    prompt = [{"role": "user", "content": "x"}]
    metadata = {"k": 1}

    class Workflow(AgentWorkflow):
        async def run(self, ctx: AgentWorkflowContext) -> Any:
            assert ctx.artifacts_dir is not None
            (ctx.artifacts_dir / "log.txt").write_text("hi")
            seen.update(
                config=ctx.config,
                same=ctx.config is self.config,
                rollout=get_rollout_context(),
                meta=ctx.metadata,
            )
            return ANSWER

    class MyGrader(Grader):
        async def grade(self, ctx: GraderContext) -> None:
            assert ctx.artifacts_dir is not None
            seen.update(
                log=(ctx.artifacts_dir / "log.txt").read_text(),
                outside=get_rollout_context(),
                grader=self.config,
            )
            seen["grader_meta"] = ctx.metadata
            ctx.set_reward(1)

    backend = LocalBackend(
        workflow=Workflow, workflow_config=config, grader=MyGrader, grader_config=grader_config
    )
    with RolloutContext("http://policy", "key", "r1") as ambient:
        _, graded = await execute(backend, prompt=prompt, metadata=metadata)
    assert graded.err_message is None
    assert seen["rollout"] is ambient
    assert seen["outside"] is None
    assert seen["same"]
    assert seen["config"] == config
    assert seen["config"] is not config
    assert seen["grader"] is grader_config
    assert seen["meta"] is seen["grader_meta"]
    assert seen["log"] == "hi"
    assert (artifact_root / "r1" / ".osmosis-health-check").is_file()


async def test_a_rollout_goes_on_without_a_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("osmosis_ai.rollout.utils.file_artifacts.CREATE_BACKOFF_SECONDS", 0.0)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("_OSMOSIS_ROLLOUT_ARTIFACT_ROOT", str(tmp_path / "file"))
    seen: list[Path | None] = []

    async def run(ctx: AgentWorkflowContext) -> Any:
        seen.append(ctx.artifacts_dir)

    (completion,) = await execute(LocalBackend(workflow=workflow(run)), grading=False)
    assert (completion.status, seen) == ("success", [None])


async def test_objects_may_be_named_by_import_path() -> None:
    backend = LocalBackend(workflow="osmosis_ai.rollout:AgentWorkflow")
    assert backend.workflow_cls is AgentWorkflow
    with pytest.raises(ImportError, match="does not export 'Nothing'"):
        LocalBackend(workflow="osmosis_ai.rollout:Nothing")

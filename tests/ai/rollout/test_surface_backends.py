"""The contract of backends and of `LocalBackend`, row by row. What is not here is in `test_local_backend.py`."""

import asyncio
import inspect
from pathlib import Path
from typing import Any

import pytest

from osmosis_ai.rollout import (
    AgentWorkflow,
    AgentWorkflowConfig,
    ConcurrencyConfig,
    ExecutionBackend,
    ExecutionRequest,
    ExecutionResult,
    Grader,
    GraderConfig,
    LocalBackend,
    RolloutSample,
    get_rollout_context,
)
from osmosis_ai.rollout import backend as backends
from osmosis_ai.rollout.backend import local as local_package

REQUEST = ExecutionRequest(id="r1", prompt=[{"role": "user", "content": "x"}], label="l", metadata={"m": 1})
CONFIG = AgentWorkflowConfig(name="w", concurrency=ConcurrencyConfig(max_concurrent=1))
GRADER_CONFIG = GraderConfig(name="g", concurrency=ConcurrencyConfig(max_concurrent=1))
made: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []


class Echo(AgentWorkflow):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        made.append(("workflow", args, kwargs))
        super().__init__(*args, **kwargs)

    async def run(self, ctx: Any) -> Any:
        self.ctx = ctx
        return ctx.prompt


class Full(Grader):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        made.append(("grader", args, kwargs))
        super().__init__(*args, **kwargs)

    async def grade(self, ctx: Any) -> None:
        ctx.set_reward(1.0)


async def ignore(result: ExecutionResult) -> None: ...


class Bare(ExecutionBackend):
    async def execute(self, request: Any, on_workflow_complete: Any, on_grader_complete: Any = None) -> None:
        await on_workflow_complete(ExecutionResult(status="success"))


async def test_what_a_backend_says_that_only_executes() -> None:
    bare = Bare()
    assert (bare.max_concurrency, bare.capture_final_result, bare.has_capacity()) == (0, False, True)
    assert (bare.rollout_status("r"), bare.health()) == (None, {"status": "ok"})
    assert bare.cancel_rollouts() == bare.cancel_rollouts(ids=["r"], prefix="r", all=True) == {}
    assert await bare.shutdown() is None  # type: ignore[func-returns-value]
    for method, parameters in {
        "execute": {
            "request": inspect.Parameter.empty,
            "on_workflow_complete": inspect.Parameter.empty,
            "on_grader_complete": None,
        },
        "cancel_rollouts": {"ids": None, "prefix": None, "all": False},
    }.items():
        found = dict(inspect.signature(getattr(ExecutionBackend, method)).parameters)
        del found["self"]
        assert {name: parameter.default for name, parameter in found.items()} == parameters


def test_where_the_backends_are() -> None:
    assert sorted(backends.__all__) == ["ExecutionBackend", "LocalBackend", "ResultCallback"]
    assert local_package.LocalBackend is local_package.backend.LocalBackend is LocalBackend  # type: ignore[attr-defined]
    with pytest.raises(TypeError):
        LocalBackend(Echo)  # type: ignore[misc]


def test_a_local_backend_holds_what_it_was_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("_OSMOSIS_ROLLOUT_ARTIFACT_ROOT", str(tmp_path))
    named = LocalBackend(
        workflow=f"{__name__}:Echo",
        workflow_config=f"{__name__}:CONFIG",
        grader=f"{__name__}:Full",
        grader_config=f"{__name__}:GRADER_CONFIG",
    )
    monkeypatch.setenv("_OSMOSIS_ROLLOUT_ARTIFACT_ROOT", "/elsewhere")
    held = (named.workflow_cls, named.workflow_config, named.grader_cls, named.grader_config)
    assert held == (Echo, CONFIG, Full, GRADER_CONFIG)
    assert named.artifact_root == tmp_path
    assert (named.max_concurrency, named.limiter.max_concurrent) == (1, 1)
    assert named.health() == {
        "status": "ok",
        "concurrency": {"max_concurrent": 1, "queued": 0, "running": 0},
    }
    assert named.has_capacity()
    assert named.rollout_status("r1") is None
    assert named.cancel_rollouts(ids=["r1"]) == {}
    assert not named.capture_final_result
    bare = LocalBackend(workflow=Echo)
    assert (bare.workflow_config, bare.grader_cls, bare.grader_config) == (None, None, None)
    assert bare.limiter.max_concurrent == 4


async def test_workflow_and_grader_are_made_once_with_one_argument() -> None:
    for config, grader_config in ((None, None), (CONFIG, GRADER_CONFIG)):
        made.clear()
        backend = LocalBackend(
            workflow=Echo, workflow_config=config, grader=Full, grader_config=grader_config
        )
        await backend.execute(REQUEST, ignore, ignore)
        assert made == [("workflow", (config,), {}), ("grader", (grader_config,), {})]
        assert (made[0][1][0] is config) == (config is None)
        assert made[1][1][0] is grader_config


async def test_the_two_halves_can_be_run_alone() -> None:
    backend = LocalBackend(workflow=Echo, grader=Full)
    result = await backend.run_workflow(REQUEST, queued_sec=1.0)
    assert result.sample is not None
    assert (result.status, result.sample.label, result.sample.reward) == ("success", "l", None)
    assert result.sample.messages == REQUEST.prompt
    graded = await backend.run_grader(REQUEST, result)
    assert graded.sample is result.sample
    assert graded.sample.reward == 1.0
    assert await LocalBackend(workflow=Echo).run_grader(REQUEST, result) is result
    without_sample = await backend.run_grader(REQUEST, ExecutionResult(status="success"))
    assert (without_sample.status, without_sample.err_category) == ("failure", "validation_error")
    assert "no sample to reward" in (without_sample.err_message or "")


async def test_the_slot_is_held_across_both_callbacks_and_what_they_raise_comes_out() -> None:
    backend = LocalBackend(workflow=Echo, grader=Full)
    running: list[int] = []

    async def note(result: ExecutionResult) -> None:
        running.append(backend.limiter.running)

    await backend.execute(REQUEST, note, note)
    assert running == [1, 1]

    async def refuse(result: ExecutionResult) -> None:
        raise ConnectionError("no controller")

    for callbacks in ((refuse, note), (note, refuse)):
        with pytest.raises(ConnectionError, match="no controller"):
            await backend.execute(REQUEST, *callbacks)
        assert backend.limiter.snapshot() == {"max_concurrent": 4, "queued": 0, "running": 0}


async def test_the_grader_waits_for_the_workflows_callback() -> None:
    order: list[str] = []
    acknowledged = asyncio.Event()

    class Noting(Full):
        async def grade(self, ctx: Any) -> None:
            order.append("grading")
            await super().grade(ctx)

    async def completion(result: ExecutionResult) -> None:
        order.append("reported")
        await acknowledged.wait()
        order.append("acknowledged")

    task = asyncio.create_task(
        LocalBackend(workflow=Echo, grader=Noting).execute(REQUEST, completion, ignore)
    )
    await asyncio.sleep(0)
    acknowledged.set()
    await task
    assert order == ["reported", "acknowledged", "grading"]


async def test_collecting_the_sample_is_inside_the_guard_and_the_deadline() -> None:
    class Broken:
        async def get_sample(self) -> RolloutSample:
            raise ValueError("no conversation")

    class Slow:
        async def get_sample(self) -> RolloutSample:
            await asyncio.Event().wait()
            raise AssertionError

    for source, message, category in (
        (Broken(), "no conversation", "validation_error"),
        (Slow(), "workflow exceeded its 0.05s deadline", "timeout"),
    ):

        class Registers(AgentWorkflow):
            async def run(self, ctx: Any, source: Any = source) -> None:
                rollout = get_rollout_context()
                assert rollout is not None
                rollout.set_sample_source(source)

        request = REQUEST.model_copy(update={"agent_timeout_sec": 0.05 if category == "timeout" else 60.0})
        result = await LocalBackend(workflow=Registers).run_workflow(request)
        assert (result.status, result.sample, result.err_message, result.err_category) == (
            "failure",
            None,
            message,
            category,
        )


async def test_without_an_ambient_context_the_environment_fills_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OSMOSIS_CHAT_COMPLETIONS_URL", "http://policy")
    monkeypatch.setenv("OSMOSIS_ROLLOUT_ID", "from-env")
    seen: list[Any] = []

    class Looks(AgentWorkflow):
        async def run(self, ctx: Any) -> Any:
            seen.append(get_rollout_context())
            assert ctx.prompt is REQUEST.prompt
            assert ctx.metadata is REQUEST.metadata
            return 5

    result = await LocalBackend(workflow=Looks).run_workflow(REQUEST)
    assert (seen[0].chat_completions_url, seen[0].rollout_id) == ("http://policy", "from-env")
    assert get_rollout_context() is None
    assert "run() must return" in (result.err_message or "")
    assert result.err_category == "validation_error"

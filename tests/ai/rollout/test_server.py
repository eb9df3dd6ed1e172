"""The rollout server, over real HTTP, against a controller that answers as told."""

import asyncio
import json
import logging
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from osmosis_ai.rollout import (
    AgentWorkflow,
    AgentWorkflowContext,
    ExecutionBackend,
    ExecutionResult,
    Grader,
    GraderContext,
    LocalBackend,
    RolloutSample,
    RolloutStatus,
)
from osmosis_ai.rollout.server import ControllerAuth, app, create_rollout_server
from osmosis_ai.rollout.utils import http as callback_http


class Echo(AgentWorkflow):
    async def run(self, ctx: AgentWorkflowContext) -> Any:
        return [*ctx.prompt, {"role": "assistant", "content": str(ctx.metadata)}]


class Full(Grader):
    async def grade(self, ctx: GraderContext) -> None:
        ctx.set_reward(1.0)


class Scripted(ExecutionBackend):
    """A backend that does what the test says."""

    def __init__(self, script: Callable[..., Any], **answers: Any) -> None:
        self.script = script
        self.answers = answers

    async def execute(self, request: Any, on_workflow_complete: Any, on_grader_complete: Any = None) -> None:
        await self.script(request, on_workflow_complete, on_grader_complete)

    @property
    def capture_final_result(self) -> bool:
        return bool(self.answers.get("capture", False))

    def has_capacity(self) -> bool:
        return bool(self.answers.get("capacity", True))

    def rollout_status(self, rollout_id: str) -> Any:
        return self.answers.get("status", {}).get(rollout_id)

    def cancel_rollouts(self, ids: Any = None, prefix: Any = None, all: bool = False) -> dict[str, str]:
        return {str((ids, prefix, all)): "not_found"}


def success(**sample: Any) -> ExecutionResult:
    messages = [{"role": "assistant", "content": "42"}]
    return ExecutionResult(status=RolloutStatus.SUCCESS, sample=RolloutSample(messages=messages, **sample))


@pytest.fixture
def body(controller: Any) -> dict[str, Any]:
    return {
        "initial_messages": [{"role": "user", "content": "x"}],
        "chat_completions_url": "http://127.0.0.1:9/v1",
        "completion_callback_url": f"{controller.url}/completion",
        "grader_callback_url": f"{controller.url}/grader",
        "rollout_id": "r1",
        "label": "42",
        "metadata": {"row": 1},
    }


@pytest.fixture
def send(serve: Callable[..., Any]) -> Callable[..., Any]:
    """Serve the backend, post the body, wait for the end of the rollout, return the answer."""

    async def run(backend: ExecutionBackend, body: dict[str, Any]) -> httpx.Response:
        server = create_rollout_server(backend=backend, configure_logging=False)
        async with serve(server) as served, httpx.AsyncClient() as client:
            return await client.post(f"{served.url}/rollout", json=body)

    return run


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real delivery with its real retry rules, only without the waiting between attempts."""

    async def post(**keywords: Any) -> Any:
        assert set(keywords) == {"url", "payload", "headers"}
        return await callback_http.post_json_with_retry(**keywords, base_delay_seconds=0.0)

    monkeypatch.setattr(app, "post_json_with_retry", post)


async def test_accepted_rollout_reports_completion_then_grader_then_archives(
    send: Any, body: Any, controller: Any, artifact_root: Path
) -> None:
    controller.answers["/completion"] = [
        (
            200,
            {
                "trajectory": {
                    "model_name": "m",
                    "samples": {"s": {"llm_call_metrics": [{"prompt_tokens": 5}]}},
                }
            },
        )
    ]
    answer = await send(
        LocalBackend(workflow=Echo, grader=Full), {**body, "extra_fields": {"row_index": 3}, "new": 1}
    )

    assert (answer.status_code, answer.json()) == (202, {})
    assert controller.calls() == [("completion", "success"), ("grader", "success")]
    assert controller.body_of("/completion") == {
        "status": "success",
        "rollout_id": "r1",
        "extra_fields": None,
        "err_message": None,
        "err_category": None,
    }
    sample = controller.body_of("/grader")["sample"]
    assert set(sample) == {"messages", "label", "reward", "remove_sample", "metrics", "extra_fields"}
    assert (sample["reward"], sample["messages"][-1]["content"]) == (1.0, "{'row': 1}")
    assert "authorization" not in controller.requests[0].headers
    document = json.loads((artifact_root / "r1" / "trajectory.json").read_text())
    assert document["agent"]["model_name"] == "m"
    assert document["steps"][-1]["metrics"] == {"prompt_tokens": 5}
    assert document["extra"]["osmosis"] == {
        "rollout_id": "r1",
        "label": "42",
        "reward": 1.0,
        "request_metadata": {"row": 1},
        "request_extra_fields": {"row_index": 3},
    }


async def test_no_grader_url_posts_only_the_completion(send: Any, body: Any, controller: Any) -> None:
    await send(
        LocalBackend(workflow=Echo, grader=Full), {**body, "grader_callback_url": None, "rollout_id": None}
    )
    assert controller.calls() == [("completion", "success")]
    assert len(controller.requests[0].body["rollout_id"]) == 32


async def test_final_result_is_captured_without_a_url(
    send: Any, body: Any, controller: Any, artifact_root: Path
) -> None:
    async def script(request: Any, on_workflow: Any, on_grader: Any) -> None:
        await on_workflow(success())
        await on_grader(success(reward=0.5))

    await send(Scripted(script, capture=True), {**body, "grader_callback_url": None})
    assert controller.calls() == [("completion", "success")]
    document = json.loads((artifact_root / "r1" / "trajectory.json").read_text())
    assert document["extra"]["osmosis"]["reward"] == 0.5


@pytest.mark.parametrize(
    ("answers", "calls"),
    [
        ({}, [("completion", "success"), ("grader", "success")]),
        (
            {"/completion": [(503, {}), (429, {}), (204, {})]},
            [("completion", "success")] * 3 + [("grader", "success")],
        ),
        (
            {"/completion": [(404, {}), (200, {})]},
            [("completion", "success"), ("completion", "failure"), ("grader", "failure")],
        ),
        (
            {"/completion": [(302, {}), (200, {})]},
            [("completion", "success"), ("completion", "failure"), ("grader", "failure")],
        ),
        (
            {"/completion": [(500, {})]},
            [("completion", "success")] * 5 + [("completion", "failure")] * 5 + [("grader", "failure")],
        ),
        (
            {"/grader": [(404, {}), (200, {})]},
            [("completion", "success"), ("grader", "success"), ("grader", "failure")],
        ),
        (
            {"/grader": [(500, {}), (200, {})]},
            [("completion", "success"), ("grader", "success"), ("grader", "success")],
        ),
        (
            {"/grader": [(500, {})]},
            [("completion", "success")] + [("grader", "success")] * 5 + [("grader", "failure")] * 5,
        ),
    ],
)
async def test_what_the_controller_sees_for_its_answers(
    answers: Any, calls: Any, send: Any, body: Any, controller: Any
) -> None:
    controller.answers.update(answers)
    await send(LocalBackend(workflow=Echo, grader=Full), body)
    assert controller.calls() == calls
    failures = [
        exchange.body
        for exchange in controller.requests
        if exchange.path == "/completion" and exchange.body["status"] == "failure"
    ]
    assert {failure["err_message"] for failure in failures} <= {"Internal server error"}


async def test_backend_that_raises_is_an_internal_error_on_both_channels(
    send: Any, body: Any, controller: Any, artifact_root: Path
) -> None:
    async def script(*_: Any) -> None:
        raise RuntimeError("details stay here")

    await send(Scripted(script), body)
    assert controller.calls() == [("completion", "failure"), ("grader", "failure")]
    assert controller.body_of("/completion")["err_message"] == "Internal server error"
    assert "details" not in json.dumps([exchange.body for exchange in controller.requests])
    assert not (artifact_root / "r1").exists()


async def test_backend_that_dies_after_its_sample_still_archives_it(
    send: Any, body: Any, controller: Any, artifact_root: Path
) -> None:
    async def script(request: Any, on_workflow: Any, on_grader: Any) -> None:
        await on_workflow(success())
        raise RuntimeError("lost")

    await send(Scripted(script), body)
    assert controller.calls() == [("completion", "success"), ("grader", "failure")]
    assert (artifact_root / "r1" / "trajectory.json").exists()


async def test_grader_failure_without_sample_keeps_the_workflows_and_diagnostics_are_saved(
    send: Any, body: Any, artifact_root: Path
) -> None:
    async def script(request: Any, on_workflow: Any, on_grader: Any) -> None:
        await on_workflow(success())
        await on_grader(
            ExecutionResult(status=RolloutStatus.FAILURE, extra_fields={"phase": "grading", "n": math.nan})
        )

    await send(Scripted(script), body)
    assert (artifact_root / "r1" / "trajectory.json").exists()
    assert json.loads((artifact_root / "r1" / "diagnostics.json").read_text()) == {"phase": "grading"}


@pytest.mark.parametrize("change", [{"remove_sample": True}, {"failed": True}])
async def test_rewards_that_must_not_train_are_nulled_on_the_wire_only(
    change: Any, send: Any, body: Any, controller: Any, artifact_root: Path
) -> None:
    async def script(request: Any, on_workflow: Any, on_grader: Any) -> None:
        graded = success(reward=0.5, remove_sample=change.get("remove_sample", False))
        if change.get("failed"):
            graded.status = RolloutStatus.FAILURE
        await on_workflow(success())
        await on_grader(graded)

    await send(Scripted(script), body)
    assert controller.body_of("/grader")["sample"]["reward"] is None
    document = json.loads((artifact_root / "r1" / "trajectory.json").read_text())
    assert document["extra"]["osmosis"]["reward"] == 0.5


async def test_samples_json_cannot_carry_are_sent_without_messages(
    send: Any, body: Any, controller: Any
) -> None:
    async def script(request: Any, on_workflow: Any, on_grader: Any) -> None:
        await on_workflow(ExecutionResult(status=RolloutStatus.SUCCESS, err_message="bad \udc80 byte"))
        sample = RolloutSample(
            messages=[{"raw": b"\xff", "x": math.nan}], metrics={"a": 1, "b": math.inf}, reward=1.0
        )
        await on_grader(ExecutionResult(status=RolloutStatus.SUCCESS, sample=sample))

    await send(Scripted(script), body)
    assert controller.calls() == [("completion", "success"), ("grader", "success")]
    sample = controller.body_of("/grader")["sample"]
    assert (sample["messages"], sample["metrics"], sample["reward"]) == ([], {}, 1.0)
    assert controller.body_of("/completion")["err_message"] == "bad ? byte"


async def test_full_backend_refuses_before_anything_is_scheduled(
    send: Any, body: Any, controller: Any
) -> None:
    async def script(*_: Any) -> None:
        raise AssertionError("must not run")

    answer = await send(Scripted(script, capacity=False), body)
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "5")
    assert answer.json() == {"detail": "rollout queue is full; retry later"}
    assert controller.requests == []


@pytest.mark.parametrize(
    "change", [{"rollout_id": "../x"}, {"label": 5}, {"agent_timeout_sec": "soon"}, {"llm_api_key": ""}]
)
async def test_invalid_bodies_are_refused(change: Any, send: Any, body: Any) -> None:
    answer = await send(LocalBackend(workflow=Echo), {**body, **change})
    assert answer.status_code == 422
    assert answer.json()["detail"][0]["loc"][:2] == ["body", next(iter(change))]


async def test_not_a_number_is_refused_like_any_other_bad_field(serve: Any, body: Any) -> None:
    raw = json.dumps({**body, "agent_timeout_sec": math.nan})
    async with (
        serve(create_rollout_server(backend=LocalBackend(workflow=Echo))) as served,
        httpx.AsyncClient() as client,
    ):
        answer = await client.post(
            f"{served.url}/rollout", content=raw, headers={"content-type": "application/json"}
        )
    assert answer.status_code == 422
    assert answer.json()["detail"][0]["type"] == "finite_number"


async def test_status_cancel_and_health(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def script(*_: Any) -> None: ...

    monkeypatch.setenv("_OSMOSIS_ROLLOUT_INSTANCE_ID", "i-1")
    backend = Scripted(script, status={"r1": {"status": "success", "reward": 0.5}})
    server = create_rollout_server(backend=backend, configure_logging=False)
    monkeypatch.setenv("_OSMOSIS_ROLLOUT_INSTANCE_ID", "i-2")
    async with serve(server) as served, httpx.AsyncClient(base_url=served.url) as client:
        known = (await client.get("/rollout/r1/status")).json()
        unknown = (await client.get("/rollout/r2/status")).json()
        health = await client.get("/health")
        cancelled = [
            await client.post("/rollout/cancel", json=selector)
            for selector in (
                {"ids": []},
                {"prefix": ""},
                {"all": True},
                {"all": False},
                {},
                {"ids": [], "all": True},
            )
        ]
    assert known == {"rollout_id": "r1", "status": "success", "reward": 0.5, "err_message": None}
    assert unknown == {"rollout_id": "r2", "status": "unknown", "reward": None, "err_message": None}
    assert health.json() == {"status": "ok", "instance_id": "i-1"}
    assert health.headers["x-osmosis-rollout-instance-id"] == "i-1"
    assert [answer.status_code for answer in cancelled] == [200, 200, 200, 422, 422, 422]
    assert cancelled[0].json() == {"dispositions": {"([], None, False)": "not_found"}}
    assert isinstance(cancelled[3].json()["detail"], str)


async def test_shutdown_waits_for_rollouts_inside_the_callers_lifespan(
    serve: Any, send: Any, body: Any, controller: Any
) -> None:
    events: list[str] = []
    release = asyncio.Event()

    async def script(request: Any, on_workflow: Any, on_grader: Any) -> None:
        await release.wait()
        await on_workflow(success())
        events.append("rollout finished")

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        events.append("opened")
        yield
        events.append("closed")

    server = create_rollout_server(backend=Scripted(script), lifespan=lifespan, configure_logging=False)
    async with serve(server) as served, httpx.AsyncClient() as client:
        await client.post(f"{served.url}/rollout", json=body)
        asyncio.get_running_loop().call_later(0.05, release.set)
    assert events == ["opened", "rollout finished", "closed"]
    assert controller.calls() == [("completion", "success")]


async def test_rollouts_that_outlast_the_drain_are_cancelled_without_callbacks(
    serve: Any, body: Any, controller: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "_SHUTDOWN_DRAIN_SEC", 0.05)
    cancelled: list[bool] = []

    async def script(*_: Any) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    server = create_rollout_server(backend=Scripted(script), configure_logging=False)
    async with serve(server) as served, httpx.AsyncClient() as client:
        await client.post(f"{served.url}/rollout", json=body)
    assert cancelled == [True]
    assert controller.requests == []


def test_logging_is_configured_only_where_there_is_none() -> None:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    backend = LocalBackend(workflow=Echo)
    try:
        root.handlers[:] = []
        root.setLevel(logging.ERROR)
        create_rollout_server(backend=backend, configure_logging=False)
        assert (root.handlers, root.level) == ([], logging.ERROR)
        create_rollout_server(backend=backend)
        assert (len(root.handlers), root.level) == (1, logging.INFO)
        root.setLevel(logging.ERROR)
        create_rollout_server(backend=backend)
        assert (len(root.handlers), root.level) == (1, logging.ERROR)
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


def test_controller_auth_hides_its_key() -> None:
    assert ControllerAuth("k").as_bearer_headers() == {"Authorization": "Bearer k"}
    assert ControllerAuth("").as_bearer_headers() is None
    assert ControllerAuth().as_bearer_headers() is None
    assert "secret" not in repr(ControllerAuth("secret"))
    assert "<redacted>" in repr(ControllerAuth("secret"))
    assert repr(ControllerAuth()) == "ControllerAuth(api_key=None)"

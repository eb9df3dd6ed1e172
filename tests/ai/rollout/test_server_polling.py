"""The rollout server, driven by a controller that polls (protocol generation C)."""

import asyncio
import json
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
    Grader,
    GraderContext,
    LocalBackend,
    RolloutSample,
    RolloutStatus,
    get_rollout_context,
)
from osmosis_ai.rollout.server import app, create_rollout_server
from osmosis_ai.rollout.server.polling import PolledRollouts, PollingRules

LEASE = "X-Osmosis-Rollout-Lease"
BODY: dict[str, Any] = {
    "rollout_id": "r1",
    "initial_messages": [{"role": "user", "content": "x"}],
    "chat_completions_url": "http://127.0.0.1:9/v1",
    "label": "42",
    "llm_api_key": "chat-key",
    "controller_api_key": "never-the-chat-key",
}


class Gate:
    """Where rollouts of a test wait."""

    def __init__(self) -> None:
        self.entered, self.release, self.cancelled = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.key: str | None = None

    async def wait(self) -> None:
        self.entered.set()
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


@pytest.fixture
def run_gate() -> Gate:
    return Gate()


@pytest.fixture
def grade_gate() -> Gate:
    gate = Gate()
    gate.release.set()
    return gate


@pytest.fixture
def backend(run_gate: Gate, grade_gate: Gate) -> LocalBackend:
    class Waits(AgentWorkflow):
        async def run(self, ctx: AgentWorkflowContext) -> Any:
            rollout = get_rollout_context()
            assert rollout is not None
            run_gate.key = rollout.api_key
            await run_gate.wait()
            if ctx.metadata == {"fail": True}:
                raise ValueError("bad row")
            return [*ctx.prompt, {"role": "assistant", "content": "42"}]

    class Rewards(Grader):
        async def grade(self, ctx: GraderContext) -> None:
            await grade_gate.wait()
            ctx.set_reward(0.5)

    return LocalBackend(workflow=Waits, grader=Rewards)


class Client:
    """A controller of generation C."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http
        self.tokens: dict[str, str] = {}

    async def start(self, **change: Any) -> httpx.Response:
        body = {**BODY, **change}
        answer = await self.http.post("/rollout", json=body)
        if answer.status_code == 202:
            self.tokens[body["rollout_id"]] = answer.json()["polling_lease_token"]
        return answer

    async def poll(self, rollout_id: str = "r1") -> dict[str, Any]:
        answer = await self.http.get(
            f"/rollout/{rollout_id}/result", headers={LEASE: self.tokens[rollout_id]}
        )
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def until(self, status: str, rollout_id: str = "r1") -> dict[str, Any]:
        async with asyncio.timeout(20):
            while (answer := await self.poll(rollout_id))["status"] != status:
                pass
        return answer


@pytest.fixture
def connect(serve: Callable[..., Any]) -> Callable[..., Any]:
    @asynccontextmanager
    async def connected(backend: ExecutionBackend, **options: Any) -> AsyncIterator[Client]:
        server = create_rollout_server(backend=backend, configure_logging=False, **options)
        async with serve(server) as served, httpx.AsyncClient(base_url=served.url, timeout=60) as http:
            yield Client(http)

    return connected


async def test_a_rollout_is_polled_from_queued_to_its_result(
    connect: Any, backend: Any, run_gate: Gate, grade_gate: Gate, artifact_root: Path, wait_until: Any
) -> None:
    grade_gate.release.clear()
    async with connect(backend) as client:
        answer = await client.start(extra_fields={"row_index": 3})
        assert answer.status_code == 202
        lease = answer.json()
        assert lease.pop("polling_lease_token")
        assert lease == {
            "rollout_id": "r1",
            "status": "queued",
            "result_wait_timeout_sec": 30.0,
            "polling_lease_timeout_sec": 120.0,
        }
        empty = {"rollout_id": "r1", "sample": None, "err_message": None, "err_category": None}
        assert await client.poll() == {**empty, "status": "running"}
        assert (await client.http.get("/rollout/r1/status")).json()["status"] == "running"
        waiting = asyncio.create_task(client.poll())
        run_gate.release.set()
        assert await waiting == {**empty, "status": "grading"}
        grade_gate.release.set()
        result = await client.poll()
        assert await client.poll() == result
        await wait_until((artifact_root / "r1" / "trajectory.json").exists)
    sample = result.pop("sample")
    assert result == {"rollout_id": "r1", "status": "success", "err_message": None, "err_category": None}
    assert set(sample) == {"messages", "label", "reward", "remove_sample", "metrics", "extra_fields"}
    assert (sample["reward"], sample["messages"][-1]["content"]) == (0.5, "42")
    assert run_gate.key == "chat-key"
    document = json.loads((artifact_root / "r1" / "trajectory.json").read_text())
    assert document["extra"]["osmosis"]["request_extra_fields"] == {"row_index": 3}


@pytest.mark.parametrize(
    ("change", "result"),
    [
        ({"metadata": {"fail": True}}, ("failure", "bad row", "validation_error", None)),
        ({"label": None}, ("failure", None, None, None)),
        ({"grade": False}, ("success", None, None, None)),
        (
            {"agent_timeout_sec": 0},
            ("failure", "workflow exceeded its 0.0s deadline", "timeout", None),
        ),
    ],
)
async def test_what_the_result_says(
    connect: Any, backend: Any, run_gate: Gate, change: Any, result: Any
) -> None:
    run_gate.release.set()
    async with connect(backend) as client:
        await client.start(**change)
        found = await client.until(result[0])
    reward = (found["sample"] or {}).get("reward")
    assert (found["status"], found["err_message"], found["err_category"], reward) == result
    assert (found["sample"] is not None) == (change == {"grade": False})


async def test_a_poll_without_news_answers_the_status_after_its_wait(
    connect: Any, backend: Any, run_gate: Gate
) -> None:
    async with connect(backend, result_wait_timeout_sec=0.05) as client:
        await client.start()
        await run_gate.entered.wait()
        assert [(await client.poll())["status"] for _ in range(3)] == ["running"] * 3
        run_gate.release.set()
        assert (await client.until("success"))["sample"]["reward"] == 0.5


async def test_refusals(connect: Any, backend: Any, run_gate: Gate) -> None:
    async with connect(backend) as client:
        await client.start()
        assert (await client.http.get("/rollout/r1/result")).status_code == 422
        for token in ("wrong", "w\u00f6rst"):
            answer = await client.http.get("/rollout/r1/result", headers={LEASE: token.encode()})
            assert answer.status_code == 403
        unknown = await client.http.get("/rollout/r2/result", headers={LEASE: client.tokens["r1"]})
        assert unknown.status_code == 404
        twice = await client.start()
        assert (twice.status_code, "fresh id" in twice.json()["detail"]) == (409, True)
        run_gate.release.set()
        await client.until("success")
        assert (await client.start()).status_code == 409
        backend.has_capacity = lambda: False
        assert (await client.start()).status_code == 409
        full = await client.start(rollout_id="r3")
        assert (full.status_code, full.headers["retry-after"]) == (429, "5")
        assert (await client.http.get("/rollout/r3/status")).json()["status"] == "unknown"


@pytest.mark.parametrize(
    ("body", "missing"),
    [
        ({"rollout_id": None}, "completion_callback_url"),
        ({"grader_callback_url": "http://127.0.0.1:9/g"}, "completion_callback_url"),
        ({"completion_callback_url": None}, "completion_callback_url"),
        ({"chat_completions_url": None}, "chat_completions_url"),
        ({"rollout_id": "a/b"}, "rollout_id"),
        ({"llm_api_key": ""}, "llm_api_key"),
        ({"grade": "perhaps"}, "grade"),
    ],
)
async def test_a_body_says_which_generation_it_is(
    connect: Any, backend: Any, body: Any, missing: str
) -> None:
    async with connect(backend) as client:
        answer = await client.start(**body)
    assert (answer.status_code, [d["loc"] for d in answer.json()["detail"]]) == (422, [["body", missing]])


async def test_a_result_that_nobody_asks_for_ends_the_rollout(
    connect: Any, backend: Any, wait_until: Any
) -> None:
    async with connect(backend, result_wait_timeout_sec=0.01, polling_lease_timeout_sec=0.05) as client:
        await client.start()
        async with asyncio.timeout(20):
            while (await client.http.get("/rollout/r1/status")).json()["status"] != "failure":
                pass
        result = await client.poll()
        await wait_until(lambda: backend.limiter.running == 0)
    assert (result["status"], result["err_category"]) == ("failure", "lease_expired")
    assert "0.05 s" in result["err_message"]


async def test_each_poll_renews_the_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, skipped = asyncio.get_running_loop(), 0.0
    start = loop.time()
    monkeypatch.setattr(loop, "time", lambda: start + skipped)
    rollout = PolledRollouts(PollingRules()).open("r1")
    for _ in range(3):
        skipped += 100  # less than the lease of 120 s
        await asyncio.sleep(0)
        rollout.renew()
    assert not rollout.ended
    skipped += 121
    async with asyncio.timeout(1000):
        while not rollout.ended:  # noqa: ASYNC110 - time is patched, so it never wakes by itself
            await asyncio.sleep(0)
    assert b"lease_expired" in await rollout.news()


async def test_a_status_never_goes_back() -> None:
    rollout = PolledRollouts(PollingRules()).open("r1")
    seen = []
    for status in ("running", "queued", "grading", "running"):
        rollout.status_changed(RolloutStatus(status))
        seen.append(rollout.status)
    assert seen == ["running", "running", "grading", "grading"]
    rollout.cancel()
    rollout.status_changed(RolloutStatus.GRADING)
    assert rollout.status == "cancelled"


async def test_results_are_kept_for_a_while_only(connect: Any, backend: Any, run_gate: Gate) -> None:
    run_gate.release.set()
    async with connect(backend, result_retention_sec=0.05) as client:
        await client.start()
        token = client.tokens["r1"]

        async def status() -> int:
            return (await client.http.get("/rollout/r1/result", headers={LEASE: token})).status_code

        async with asyncio.timeout(20):
            while await status() != 404:
                pass
        assert (await client.start()).status_code == 202


@pytest.mark.parametrize("selector", [{"ids": ["r1", "r2", "r3"]}, {"prefix": "r"}, {"all": True}])
async def test_local_rollouts_that_are_polled_can_be_cancelled(
    connect: Any, run_gate: Gate, backend: Any, selector: Any
) -> None:
    backend.limiter = type(backend.limiter)(max_concurrent=1)
    async with connect(backend) as client:
        await client.start()
        await run_gate.entered.wait()
        assert (await client.poll())["status"] == "running"
        await client.start(rollout_id="r2")
        waiting = asyncio.create_task(client.poll("r2"))
        answer = await client.http.post("/rollout/cancel", json=selector)
        expected = {"r1": "cancelled_running", "r2": "cancelled_queued"}
        if "ids" in selector:
            expected["r3"] = "not_found"
        assert answer.json() == {"dispositions": expected}
        assert (await waiting)["status"] == "cancelled"
        assert (await client.poll())["status"] == "cancelled"
        await asyncio.wait_for(run_gate.cancelled.wait(), 10)
        again = await client.http.post("/rollout/cancel", json={"ids": ["r1"]})
        assert again.json() == {"dispositions": {"r1": "not_found"}}
    assert backend.limiter.snapshot() == {"max_concurrent": 1, "queued": 0, "running": 0}


class Broken(ExecutionBackend):
    """Ends in its own way."""

    def __init__(self, way: str) -> None:
        self.way = way
        self.stopped = 0

    async def execute(self, request: Any, on_workflow_complete: Any, on_grader_complete: Any = None) -> None:
        if self.way == "raises":
            raise RuntimeError("details stay here")

    async def shutdown(self) -> None:
        self.stopped += 1
        raise RuntimeError("not even this")


@pytest.mark.parametrize("way", ["raises", "says nothing"])
async def test_a_broken_backend_is_no_verdict_on_the_agent(connect: Any, way: str) -> None:
    backend = Broken(way)
    async with connect(backend) as client:
        await client.start()
        result = await client.until("failure")
    assert result["err_category"] == "internal_error"
    assert "details" not in result["err_message"]
    assert backend.stopped == 1


async def test_a_sample_json_cannot_carry_is_kept_without_messages(connect: Any, backend: Any) -> None:
    async def execute(request: Any, on_workflow: Any, on_grader: Any) -> None:
        from osmosis_ai.rollout import ExecutionResult

        sample = RolloutSample(messages=[{"raw": b"\xff", "x": math.nan}], metrics={"a": 1}, reward=1.0)
        await on_workflow(ExecutionResult(status="success", sample=sample))
        await on_grader(ExecutionResult(status="success", sample=sample))

    backend.execute = execute
    async with connect(backend) as client:
        await client.start()
        result = await client.until("success")
    assert (result["sample"]["messages"], result["sample"]["reward"]) == ([], 1.0)


async def test_health_shows_the_lifecycle_to_controllers_that_poll(
    connect: Any, backend: Any, run_gate: Gate
) -> None:
    async with connect(backend) as client:
        before = (await client.http.get("/health")).json()
        await client.start()
        during = (await client.http.get("/health")).json()
        run_gate.release.set()
        await client.until("success")
        paths = (await client.http.get("/openapi.json")).json()["paths"]
    assert set(before) == {"status", "concurrency"}
    assert during["instance_id"] == during["process_id"]
    assert during["lifecycle"] == {"accepting_rollouts": True, "active_rollouts": 1}
    assert {"/health", "/rollout", "/rollout/{rollout_id}/result", "/rollout/cancel"} <= set(paths)


async def test_a_server_that_stops_takes_nothing_more_and_ends_what_runs(
    backend: Any, run_gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "_SHUTDOWN_DRAIN_SEC", 0.2)
    server = create_rollout_server(backend=backend, configure_logging=False)
    transport = httpx.ASGITransport(server)
    async with httpx.AsyncClient(transport=transport, base_url="http://server") as http:
        client = Client(http)
        async with server.router.lifespan_context(server):
            await client.start()
            await run_gate.entered.wait()
            polling = asyncio.create_task(client.until("cancelled"))
            refused = asyncio.create_task(_refused_start(client))
        assert (await polling)["status"] == "cancelled"
        assert await refused == 503
        assert run_gate.cancelled.is_set()


async def _refused_start(client: Client) -> int:
    async with asyncio.timeout(20):
        number = 0
        while True:
            number += 1
            answer = await client.start(rollout_id=f"late-{number}")
            if answer.status_code != 202:
                return answer.status_code
            await asyncio.sleep(0.01)


async def test_a_server_with_a_key_asks_for_it_everywhere(connect: Any, backend: Any, run_gate: Gate) -> None:
    run_gate.release.set()
    async with connect(backend, api_key="server-key") as client:
        for header in ({}, {"authorization": "Bearer wrong"}, {"authorization": "server-key"}):
            for method, path in (("GET", "/health"), ("POST", "/rollout"), ("GET", "/openapi.json")):
                answer = await client.http.request(method, path, headers=header)
                assert (answer.status_code, answer.json()) == (401, {"detail": "unauthorized"})
        client.http.headers["authorization"] = "Bearer server-key"
        await client.start()
        assert (await client.until("success"))["sample"]["reward"] == 0.5


@pytest.mark.parametrize(
    "options",
    [
        {"api_key": " "},
        {"result_wait_timeout_sec": 120},
        {"result_wait_timeout_sec": 0},
        {"result_retention_sec": -1},
    ],
)
def test_settings_that_cannot_work_are_refused(backend: Any, options: Any) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        create_rollout_server(backend=backend, configure_logging=False, **options)


async def test_one_server_serves_controllers_of_all_generations_at_once(
    connect: Any, backend: Any, run_gate: Gate, controller: Any
) -> None:
    run_gate.release.set()
    urls = {
        "completion_callback_url": f"{controller.url}/completion",
        "grader_callback_url": f"{controller.url}/grader",
    }
    async with connect(backend) as client:
        polled = await client.start()
        called_back = await client.http.post("/rollout", json={**BODY, **urls, "grade": True})
        assert (polled.status_code, called_back.status_code, called_back.json()) == (202, 202, {})
        result = await client.until("success")
    assert controller.calls() == [("completion", "success"), ("grader", "success")]
    assert controller.requests[1].body["sample"] == result["sample"]

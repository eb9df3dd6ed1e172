"""Our controller and our rollout server together: called back and polled, restarted, a thousand at once."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from osmosis_ai.rollout import (
    AgentWorkflow,
    AgentWorkflowConfig,
    AgentWorkflowContext,
    Grader,
    GraderContext,
    LocalBackend,
    get_rollout_context,
)
from osmosis_ai.rollout.controller import watch
from osmosis_ai.rollout.controller.lanes import make_http_client
from osmosis_ai.rollout.driver import RolloutRunRequest
from osmosis_ai.rollout.server import create_rollout_server

UNLIMITED = AgentWorkflowConfig(name="agent")


@pytest.fixture(autouse=True)
def artifact_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_OSMOSIS_ROLLOUT_ARTIFACT_ROOT", str(tmp_path))


class Meeting:
    """Rollouts that wait inside of their workflow. Each test has its own, so that none counts what another left behind."""

    def __init__(self) -> None:
        self.running = 0
        self.wanted = 1
        self.together = asyncio.Event()

    async def wait(self, *, forever: bool) -> None:
        self.running += 1
        if self.running >= self.wanted:
            self.together.set()
        try:
            await (asyncio.Event().wait() if forever else self.together.wait())
        finally:
            self.running -= 1


class Agent(AgentWorkflow):
    """Asks the policy once; its first message may tell it to do something else."""

    meeting: Meeting

    async def run(self, ctx: AgentWorkflowContext) -> Any:
        told = ctx.prompt[-1]["content"]
        if told == "raise":
            raise ValueError("no such tool")
        if told in ("hang", "meet"):
            await Agent.meeting.wait(forever=told == "hang")
        rollout = get_rollout_context()
        assert rollout is not None
        async with make_http_client(httpx.Timeout(300)) as http:
            answer = await http.post(
                f"{rollout.chat_completions_url}/chat/completions",
                json={"model": "osmosis-rollout", "messages": ctx.prompt},
                headers={"Authorization": f"Bearer {rollout.api_key}"},
            )
        answer.raise_for_status()
        return [*ctx.prompt, answer.json()["choices"][0]["message"]]


class Echoed(Grader):
    async def grade(self, ctx: GraderContext) -> None:
        assert ctx.sample is not None
        ctx.set_reward(1.0 if ctx.sample.messages[-1]["content"].endswith(str(ctx.label)) else 0.0)


@pytest.fixture
async def meeting() -> Meeting:
    Agent.meeting = Meeting()
    return Agent.meeting


def request(told: str = "hello", **fields: Any) -> RolloutRunRequest:
    fields = {"label": "hello", "agent_timeout_sec": 300, "grader_timeout_sec": 60, **fields}
    return RolloutRunRequest([{"role": "user", "content": told}], **fields)


@contextlib.asynccontextmanager
async def served(serve_app: Any, port: int = 0, **options: Any) -> AsyncIterator[tuple[LocalBackend, str]]:
    backend = LocalBackend(workflow=Agent, workflow_config=UNLIMITED, grader=Echoed)
    app = create_rollout_server(backend=backend, configure_logging=False, **options)
    async with serve_app(app, port=port) as url, app.router.lifespan_context(app):
        yield backend, url


both = pytest.mark.parametrize("poll", [False, True], ids=["called back", "polled"])


@both
async def test_a_rollout_ends_with_what_happened(
    poll: bool, serve_app: Any, start_controller: Any, policy: Any
) -> None:
    async with served(serve_app) as (_, url):
        controller = await start_controller(url, poll=poll)
        right, wrong, failed = await asyncio.gather(
            controller.run(request(rollout_id="row 1:7?.x")),
            controller.run(request(label="other")),
            controller.run(request("raise")),
        )
    assert (right.status, right.reward, right.rollout_id) == ("success", 1.0, "row 1:7?.x")
    assert right.sample["messages"][-1]["content"] == "echo hello"
    assert (wrong.status, wrong.reward) == ("success", 0.0)
    assert (failed.status, failed.error_type, failed.error_message) == (
        "failed",
        "validation_error",
        "no such tool",
    )
    assert len(policy.requests) == 2


@both
async def test_the_servers_own_key_is_given(poll: bool, serve_app: Any, start_controller: Any) -> None:
    async with served(serve_app, api_key="server-key") as (_, url):
        controller = await start_controller(url, poll=poll, server_api_key="server-key")
        assert (await controller.run(request())).status == "success"
        stranger = await start_controller(url, poll=poll, start_timeout_s=0.1)
        refused = await stranger.run(request())
    assert refused.error_type == "rollout_server_unreachable"
    assert "unauthorized" in refused.error_message


async def test_a_polled_rollout_that_is_given_up_leaves_its_slot(
    serve_app: Any, start_controller: Any, meeting: Any
) -> None:
    async with served(serve_app) as (backend, url):
        controller = await start_controller(url, poll=True)
        running = asyncio.create_task(controller.run(request("hang")))
        await asyncio.wait_for(meeting.together.wait(), 20)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        async with asyncio.timeout(20):
            while backend.limiter.running:  # noqa: ASYNC110 - the limiter has no event
                await asyncio.sleep(0.01)
    assert meeting.running == 0


@both
async def test_a_restart_in_the_middle_is_no_verdict(
    poll: bool, serve_app: Any, start_controller: Any, unused_port: int, meeting: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(watch, "POLL_SEC", 0.05)
    monkeypatch.setattr(watch, "REFUSED_SEC", 0.2)
    monkeypatch.setattr("osmosis_ai.rollout.server.app._SHUTDOWN_DRAIN_SEC", 0.0)
    controller = await start_controller(f"http://127.0.0.1:{unused_port}", poll=poll)
    monkeypatch.setenv("_OSMOSIS_ROLLOUT_INSTANCE_ID", "server.1")
    async with served(serve_app, unused_port):
        running = asyncio.create_task(controller.run(request("hang")))
        await asyncio.wait_for(meeting.together.wait(), 20)
    monkeypatch.setenv("_OSMOSIS_ROLLOUT_INSTANCE_ID", "server.2")
    async with served(serve_app, unused_port):
        lost = await asyncio.wait_for(running, 30)
        assert (await controller.run(request())).reward == 1.0
    assert (lost.status, lost.reward) == ("invalid", None)


async def test_a_server_that_cannot_be_polled_is_called_back(
    start_server: Any, start_controller: Any
) -> None:
    from fastapi.responses import JSONResponse

    server, url = await start_server("B")
    missing = {"loc": ["body", "completion_callback_url"], "msg": "Field required", "input": {"k": "secret"}}
    server.refusals = [JSONResponse({"detail": [missing]}, status_code=422)]
    result = await (await start_controller(url, poll=True)).run(request())
    assert (result.status, result.reward) == ("success", 0.5)
    assert "completion_callback_url" in server.bodies[0]


async def test_no_error_repeats_the_keys_of_a_refused_rollout(
    start_server: Any, start_controller: Any
) -> None:
    from fastapi import Response

    server, url = await start_server("B")

    async def echo(body: dict[str, Any]) -> Response:
        keys = (body["controller_api_key"], body["llm_api_key"])
        seen.extend(keys)
        return Response(f"<h1>cannot handle {keys}</h1>", status_code=400)

    seen: list[str] = []
    server._accept = echo
    server.app.router.routes[:] = [r for r in server.app.router.routes if r.path != "/rollout"]
    server.app.add_api_route("/rollout", echo, methods=["POST"])
    result = await (await start_controller(url)).run(request())
    assert "cannot handle" in result.error_message
    assert len(seen) == 2
    assert not [key for key in seen if key in result.error_message]


@both
@pytest.mark.parametrize("count", [40, pytest.param(1000, marks=pytest.mark.slow)])
async def test_many_rollouts_run_at_the_same_time(
    poll: bool, count: int, serve_app: Any, start_controller: Any, meeting: Any
) -> None:
    meeting.wanted = count
    async with served(serve_app) as (backend, url):
        controller = await start_controller(url, poll=poll)
        results = await asyncio.gather(*(controller.run(request("meet", label="meet")) for _ in range(count)))
        # The reasons are compared too: a failure has to say what happened.
        ends = {(r.status, r.reward, r.error_type, r.error_message) for r in results}
        assert ends == {("success", 1.0, None, None)}
        assert controller.open_rollouts == 0
    assert backend.limiter.running == 0

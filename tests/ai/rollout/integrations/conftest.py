"""A whole rollout of one workflow: real rollout server, real callbacks, real policy endpoint, saved trajectory."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from osmosis_ai.rollout import Grader, GraderContext, LocalBackend
from osmosis_ai.rollout.server import app as server_app
from osmosis_ai.rollout.server import create_rollout_server

type Json = dict[str, Any]

PROMPT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "6 times 7?"}]


def text_of(message: Json) -> str:
    """The text of a native message of either framework."""
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return " ".join(block["text"] for block in content if "text" in block)


class LastTextGrader(Grader):
    """1 when the last text contains the label."""

    async def grade(self, ctx: GraderContext) -> None:
        assert ctx.sample is not None
        ctx.set_reward(1.0 if ctx.label and ctx.label in text_of(dict(ctx.sample.messages[-1])) else 0.0)


@dataclass
class Outcome:
    """What the controller and the disk have after a rollout."""

    callbacks: list[tuple[str, str]]
    completion: Json
    grader: Json
    trajectory: Json | None

    @property
    def sample(self) -> Json:
        assert self.grader["sample"], self.completion
        return self.grader["sample"]

    @property
    def document(self) -> Json:
        assert self.trajectory is not None, (self.completion, self.grader)
        return self.trajectory

    @property
    def agent_steps(self) -> list[Json]:
        return [step for step in self.document["steps"] if step["source"] == "agent"]


def call(name: str, identity: str = "call_1", **arguments: Any) -> Json:
    """A tool call as a policy writes it."""
    return {
        "id": identity,
        "type": "function",
        "function": {"name": name, "arguments": json.dumps(arguments)},
    }


def in_turn(*messages: Json | str | tuple[int, Json]) -> Callable[[Json], tuple[int, Json]]:
    """A policy script: one answer per request. Text is an answer, a dict fields of one, a tuple a refusal."""
    queue = list(messages)

    def script(body: Json) -> tuple[int, Json]:
        answer = queue.pop(0)
        if isinstance(answer, tuple):
            return answer
        return 200, {"role": "assistant", **({"content": answer} if isinstance(answer, str) else answer)}

    return script


@pytest.fixture
def roll(
    policy: Any,
    controller: Any,
    serve: Any,
    wait_until: Any,
    artifact_root: Path,
    check_atif: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., Any]:
    """Run one rollout of a workflow to its end. A saved trajectory is checked against the format."""
    monkeypatch.setattr(server_app, "_SHUTDOWN_DRAIN_SEC", 180.0)

    async def run(
        workflow: Any, *, prompt: Any = PROMPT, label: str = "42", grader: Any = LastTextGrader, **fields: Any
    ) -> Outcome:
        backend = LocalBackend(workflow=workflow, grader=grader)
        app = create_rollout_server(backend=backend, configure_logging=False)
        request = {
            "rollout_id": "r7",
            "initial_messages": prompt,
            "chat_completions_url": f"{policy.url}/v1/rollouts/r7",
            "completion_callback_url": f"{controller.url}/completion",
            "grader_callback_url": f"{controller.url}/grader",
            "controller_api_key": "controller-key",
            "llm_api_key": "policy-key",
            "label": label,
            **fields,
        }
        async with serve(app) as served, httpx.AsyncClient(timeout=180) as client:
            answer = await client.post(f"{served.url}/rollout", json=request)
            assert (answer.status_code, answer.json()) == (202, {})
            await wait_until(lambda: len(controller.requests) == 2, 180)
        # The server has stopped, and waited for the rollout's last file.
        path = artifact_root / "r7" / "trajectory.json"
        document = json.loads(path.read_text()) if path.exists() else None
        if document is not None:
            check_atif(document)
        return Outcome(
            controller.calls(), controller.body_of("/completion"), controller.body_of("/grader"), document
        )

    return run


@pytest.fixture
def failure_of_tool(policy: Any, roll: Any) -> Callable[..., Any]:
    """What a rollout failed with whose policy calls the tool of that name."""

    async def run(name: str, workflow: Any) -> str:
        policy.script = in_turn({"tool_calls": [call(name)]})
        completion = (await roll(workflow)).completion
        return f"{completion['err_category']}: {completion['err_message']}"

    return run


@pytest.fixture(name="call")
def call_fixture() -> Callable[..., Json]:
    """A tool call as a policy writes it."""
    return call


@pytest.fixture(name="in_turn")
def in_turn_fixture() -> Callable[..., Any]:
    """A policy script of one answer per request."""
    return in_turn


@pytest.fixture
def mcp_server_script() -> str:
    """A real MCP server on stdio with the tool `multiply`."""
    return str(Path(__file__).parent / "mcp_server.py")

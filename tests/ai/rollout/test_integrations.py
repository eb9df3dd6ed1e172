"""Both agent frameworks, with a real tool, against a real HTTP endpoint."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from agents import ModelSettings, Runner, function_tool
from strands import tool

from osmosis_ai.rollout import (
    AgentWorkflow,
    AgentWorkflowContext,
    ExecutionRequest,
    ExecutionResult,
    Grader,
    GraderContext,
    LocalBackend,
    RolloutContext,
)
from osmosis_ai.rollout.integrations.agents import openai_agents, strands
from osmosis_ai.rollout.server import create_rollout_server
from osmosis_ai.rollout.trajectory import convert_sample_to_trajectory


@tool
def strands_multiply(a: int, b: int) -> int:
    """Multiply two integers."""
    return a * b


@function_tool
def agents_multiply(a: int, b: int) -> int:
    """Multiply two integers."""
    return a * b


class StrandsWorkflow(AgentWorkflow):
    async def run(self, ctx: AgentWorkflowContext) -> None:
        agent = strands.OsmosisStrandsAgent(
            name="multiplier",
            model=strands.OsmosisRolloutModel(params={"temperature": 0.5, "max_tokens": 64, "top_k": 5}),
            tools=[strands_multiply],
            messages=ctx.prompt,
            callback_handler=None,
        )
        await agent.invoke_async()


class AgentsWorkflow(AgentWorkflow):
    async def run(self, ctx: AgentWorkflowContext) -> None:
        agent = openai_agents.OsmosisAgent(
            name="multiplier",
            instructions="Use the tool.",
            model=openai_agents.OsmosisRolloutModel(),
            model_settings=ModelSettings(temperature=0.5, max_tokens=64, extra_args={"top_k": 5}),
            tools=[agents_multiply],
        )
        await Runner.run(agent, ctx.prompt, session=openai_agents.OsmosisMemorySession())


class StreamedAgentsWorkflow(AgentWorkflow):
    async def run(self, ctx: AgentWorkflowContext) -> None:
        agent = openai_agents.OsmosisAgent(
            name="multiplier", model=openai_agents.OsmosisRolloutModel(), tools=[agents_multiply]
        )
        run = Runner.run_streamed(agent, ctx.prompt, session=openai_agents.OsmosisMemorySession())
        async for _ in run.stream_events():
            pass


def last_text(messages: Any) -> str:
    content = messages[-1]["content"]
    return content if isinstance(content, str) else content[-1]["text"]


class MultiplyGrader(Grader):
    async def grade(self, ctx: GraderContext) -> None:
        assert ctx.sample is not None
        ctx.set_reward(1.0 if ctx.label and last_text(ctx.sample.messages).endswith(ctx.label) else 0.0)


WORKFLOWS = [StrandsWorkflow, AgentsWorkflow, StreamedAgentsWorkflow]
PROMPT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "6 times 7?"}]


async def execute(workflow: Any, policy_url: str, key: str | None = "secret") -> list[ExecutionResult]:
    results: list[ExecutionResult] = []

    async def keep(result: ExecutionResult) -> None:
        results.append(result)

    backend = LocalBackend(workflow=workflow, grader=MultiplyGrader)
    with RolloutContext(policy_url, key, "r1"):
        await backend.execute(ExecutionRequest(id="r1", prompt=PROMPT, label="42"), keep, keep)
    return results


@pytest.mark.parametrize("workflow", WORKFLOWS)
async def test_tool_using_agent_is_rewarded_and_keeps_call_facts(workflow: Any, policy: Any) -> None:
    completion, graded = await execute(workflow, f"{policy.url}/v1/rollouts/r1/")

    assert completion.err_message is None
    assert graded.sample is not None
    assert graded.sample.reward == 1.0
    roles = [message["role"] for message in graded.sample.trajectory_messages or []]
    assert roles == ["system", "user", "assistant", "tool", "assistant"]
    steps = convert_sample_to_trajectory(graded.sample, rollout_id="r1").steps
    agent_steps = [step for step in steps if step.source == "agent"]
    for step in agent_steps:
        assert step.metrics is not None
        assert step.metrics.prompt_tokens == 11
        assert step.metrics.completion_tokens == 3
        assert step.metrics.cached_tokens == 4
        assert step.model_name == "osmosis-rollout"
        assert step.timestamp is not None
    assert agent_steps[0].reasoning_content == "I should multiply."
    assert agent_steps[0].tool_calls is not None
    assert agent_steps[0].tool_calls[0].arguments == {"a": 6, "b": 7}
    assert agent_steps[0].observation is not None
    assert agent_steps[0].observation.results[0].content == "42"


@pytest.mark.parametrize("workflow", WORKFLOWS)
async def test_requests_on_the_wire(workflow: Any, policy: Any) -> None:
    await execute(workflow, f"{policy.url}/v1/rollouts/r1")

    assert len(policy.requests) == 2
    for request in policy.requests:
        assert request.path == "/v1/rollouts/r1/chat/completions"
        assert request.headers["authorization"] == "Bearer secret"
        assert request.body["model"] == "osmosis-rollout"
        assert request.body["stream"] is True
        assert request.body["stream_options"] == {"include_usage": True}
        assert request.body["tools"][0]["function"]["name"].endswith("multiply")
        if workflow is not StreamedAgentsWorkflow:
            assert (request.body["temperature"], request.body["max_tokens"]) == (0.5, 64)
            assert request.body["top_k"] == 5
    assert policy.requests[1].body["messages"][-1]["role"] == "tool"


@pytest.mark.parametrize("workflow", WORKFLOWS)
async def test_own_openai_key_never_reaches_the_controller(
    workflow: Any, policy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-private")
    await execute(workflow, policy.url, key=None)
    assert "sk-private" not in json.dumps([request.headers for request in policy.requests])


@pytest.mark.parametrize("workflow", WORKFLOWS)
async def test_refused_call_fails_the_workflow_as_agent_error(workflow: Any, policy: Any) -> None:
    policy.script = lambda body: (400, {"error": {"message": "prompt too long", "code": "bad"}})
    completion, graded = await execute(workflow, policy.url)
    assert (completion.status, completion.err_category) == ("failure", "agent_error")
    assert "prompt too long" in (completion.err_message or "")
    assert (graded.status, graded.sample, graded.err_message) == ("failure", None, None)
    assert len(policy.requests) == 1


@pytest.mark.parametrize("workflow", WORKFLOWS)
async def test_missing_url_says_what_to_do(workflow: Any) -> None:
    completion, _ = await execute(workflow, "")
    assert "OSMOSIS_CHAT_COMPLETIONS_URL" in (completion.err_message or "")


@pytest.mark.parametrize("workflow", WORKFLOWS)
async def test_whole_rollout_over_http(
    workflow: Any,
    policy: Any,
    controller: Any,
    serve: Callable[..., Any],
    wait_until: Callable[..., Any],
    artifact_root: Path,
) -> None:
    app = create_rollout_server(
        backend=LocalBackend(workflow=workflow, grader=MultiplyGrader), configure_logging=False
    )
    async with serve(app) as served, httpx.AsyncClient() as client:
        answer = await client.post(
            f"{served.url}/rollout",
            json={
                "rollout_id": "r7",
                "initial_messages": PROMPT,
                "chat_completions_url": f"{policy.url}/v1/rollouts/r7",
                "completion_callback_url": f"{controller.url}/completion",
                "grader_callback_url": f"{controller.url}/grader",
                "controller_api_key": "ck",
                "llm_api_key": "lk",
                "label": "42",
            },
        )
        assert (answer.status_code, answer.json()) == (202, {})
        document = artifact_root / "r7" / "trajectory.json"
        await wait_until(document.exists)

    assert controller.calls() == [("completion", "success"), ("grader", "success")]
    assert controller.requests[0].headers["authorization"] == "Bearer ck"
    assert policy.requests[0].headers["authorization"] == "Bearer lk"
    sample = controller.body_of("/grader")["sample"]
    assert sample["reward"] == 1.0
    assert "trajectory_messages" not in sample
    assert last_text(sample["messages"]) == "The answer is 42"
    trajectory = json.loads(document.read_text())
    assert trajectory["extra"]["osmosis"]["reward"] == 1.0
    assert trajectory["final_metrics"]["total_prompt_tokens"] == 22

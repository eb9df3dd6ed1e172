"""What a Strands agent does inside a rollout reaches the grader, the callbacks and the saved trajectory."""

import json
import sys
from typing import Any

import pytest
from mcp import StdioServerParameters, stdio_client
from pydantic import BaseModel
from strands import Agent, tool
from strands.tools.mcp import MCPClient

from osmosis_ai.rollout import AgentWorkflow, AgentWorkflowContext
from osmosis_ai.rollout.integrations.agents.strands import OsmosisRolloutModel, OsmosisStrandsAgent


@tool
def multiply(a: int, b: int) -> int:
    """Multiply two integers."""
    return a * b


@tool
def broken() -> str:
    """Never works."""
    raise ValueError("out of order")


def agent_for(ctx: AgentWorkflowContext, **options: Any) -> OsmosisStrandsAgent:
    defaults: dict[str, Any] = {
        "model": OsmosisRolloutModel(params={"temperature": 0.5, "max_tokens": 64, "top_k": 5}),
        "tools": [multiply],
        "messages": ctx.prompt,
        "callback_handler": None,
    }
    return OsmosisStrandsAgent(**{**defaults, **options})


class ToolUse(AgentWorkflow):
    async def run(self, ctx: AgentWorkflowContext) -> None:
        await agent_for(ctx).invoke_async()


@pytest.mark.parametrize("in_pieces", [False, True])
async def test_tools_usage_model_times_and_reasoning_survive(policy: Any, roll: Any, in_pieces: bool) -> None:
    policy.in_pieces = in_pieces
    outcome = await roll(ToolUse)

    assert outcome.callbacks == [("completion", "success"), ("grader", "success")]
    assert outcome.sample["reward"] == 1.0
    assert [message["role"] for message in outcome.sample["messages"]] == [
        "system",
        "user",
        "assistant",
        "user",
        "assistant",
    ]
    assert [step["source"] for step in outcome.document["steps"]] == ["system", "user", "agent", "agent"]
    first, last = outcome.agent_steps
    for step in (first, last):
        assert step["metrics"]["prompt_tokens"] == 11
        assert step["metrics"]["completion_tokens"] == 3
        assert step["metrics"]["cached_tokens"] == 4
        assert step["model_name"] == "osmosis-rollout"
        assert step["timestamp"]
        assert step["llm_call_count"] == 1
    assert first["timestamp"] <= last["timestamp"]
    assert first["reasoning_content"] == "I should multiply."
    assert first["tool_calls"] == [
        {"tool_call_id": "call_1", "function_name": "multiply", "arguments": {"a": 6, "b": 7}}
    ]
    assert first["observation"]["results"] == [{"source_call_id": "call_1", "content": "42"}]
    assert last["message"] == "The answer is 42"
    assert outcome.document["final_metrics"] == {
        "total_prompt_tokens": 22,
        "total_completion_tokens": 6,
        "total_cached_tokens": 8,
        "total_steps": 4,
    }


async def test_requests_on_the_wire(policy: Any, roll: Any) -> None:
    await roll(ToolUse)

    assert len(policy.requests) == 2
    for request in policy.requests:
        assert request.path == "/v1/rollouts/r7/chat/completions"
        assert request.headers["authorization"] == "Bearer policy-key"
        assert not [name for name in request.headers if "sample" in name or "rollout" in name]
        body = request.body
        assert body["model"] == "osmosis-rollout"
        assert body["stream"] is True
        assert body["stream_options"] == {"include_usage": True}
        assert body["tools"][0]["function"]["name"] == "multiply"
        assert (body["temperature"], body["max_tokens"], body["top_k"]) == (0.5, 64, 5)
    assert [message["role"] for message in policy.requests[0].body["messages"]] == ["system", "user"]
    call, result = policy.requests[1].body["messages"][-2:]
    assert "content" not in call
    assert (result["role"], result["tool_call_id"], result["content"]) == ("tool", "call_1", "42")


class WholeAnswers(AgentWorkflow):
    async def run(self, ctx: AgentWorkflowContext) -> None:
        await agent_for(ctx, model=OsmosisRolloutModel(stream=False)).invoke_async()


async def test_answers_can_be_asked_for_whole(policy: Any, roll: Any) -> None:
    outcome = await roll(WholeAnswers)
    assert [request.body["stream"] for request in policy.requests] == [False, False]
    assert outcome.sample["reward"] == 1.0
    assert [step["metrics"]["prompt_tokens"] for step in outcome.agent_steps] == [11, 11]
    assert outcome.agent_steps[0]["reasoning_content"] == "I should multiply."


class Streamed(AgentWorkflow):
    seen: list[str] = []

    async def run(self, ctx: AgentWorkflowContext) -> None:
        async for event in agent_for(ctx).stream_async():
            if "data" in event:
                self.seen.append(event["data"])


async def test_events_can_be_streamed(policy: Any, roll: Any) -> None:
    policy.in_pieces = True
    Streamed.seen = []
    outcome = await roll(Streamed)
    assert len(Streamed.seen) > 3
    assert "".join(Streamed.seen) == "The answer is 42"
    assert outcome.sample["reward"] == 1.0


async def test_parallel_tool_calls_stay_together(policy: Any, roll: Any, call: Any, in_turn: Any) -> None:
    both = [call("multiply", "c1", a=6, b=7), call("multiply", "c2", a=2, b=3)]
    policy.in_pieces = True
    policy.script = in_turn({"tool_calls": both}, "42 and 6")
    outcome = await roll(ToolUse)

    assert len(policy.requests) == 2
    results = [message for message in policy.requests[1].body["messages"] if message["role"] == "tool"]
    assert {result["tool_call_id"]: result["content"] for result in results} == {"c1": "42", "c2": "6"}
    first = outcome.agent_steps[0]
    assert [made["tool_call_id"] for made in first["tool_calls"]] == ["c1", "c2"]
    observed = {result["source_call_id"]: result["content"] for result in first["observation"]["results"]}
    assert observed == {"c1": "42", "c2": "6"}
    blocks = [block for message in outcome.sample["messages"] for block in message["content"]]
    assert [block["toolUse"]["toolUseId"] for block in blocks if "toolUse" in block] == ["c1", "c2"]


class BrokenTool(AgentWorkflow):
    async def run(self, ctx: AgentWorkflowContext) -> None:
        await agent_for(ctx, tools=[broken]).invoke_async()


async def test_tool_that_fails_is_an_observation(policy: Any, roll: Any, call: Any, in_turn: Any) -> None:
    policy.script = in_turn({"tool_calls": [call("broken")]}, "42 without it")
    outcome = await roll(BrokenTool)
    assert outcome.sample["reward"] == 1.0
    (result,) = outcome.agent_steps[0]["observation"]["results"]
    assert "out of order" in result["content"]


@tool
def leaves() -> str:
    """Wants to end the process."""
    sys.exit(3)


class LeavingTool(AgentWorkflow):
    async def run(self, ctx: AgentWorkflowContext) -> None:
        await agent_for(ctx, tools=[leaves]).invoke_async()


async def test_tool_that_exits_fails_its_rollout_only(failure_of_tool: Any) -> None:
    assert await failure_of_tool("leaves", LeavingTool) == "agent_error: user code called SystemExit(3)"


class Nested(AgentWorkflow):
    async def run(self, ctx: AgentWorkflowContext) -> None:
        @tool
        async def ask_expert(question: str) -> str:
            """Ask an expert."""
            expert = Agent(model=agent.model, system_prompt="You are the expert.", callback_handler=None)
            return str(await expert.invoke_async(question))

        agent = agent_for(ctx, tools=[ask_expert])
        await agent.invoke_async()


async def test_agent_used_as_a_tool(policy: Any, roll: Any, call: Any, in_turn: Any) -> None:
    policy.script = in_turn(
        {"tool_calls": [call("ask_expert", question="6 times 7?")]}, "It is 42.", "So 42."
    )
    outcome = await roll(Nested)

    roles = [[message["role"] for message in request.body["messages"]] for request in policy.requests]
    assert roles == [["system", "user"], ["system", "user"], ["system", "user", "assistant", "tool"]]
    assert {request.headers["authorization"] for request in policy.requests} == {"Bearer policy-key"}
    assert outcome.sample["reward"] == 1.0
    assert len(outcome.agent_steps) == 2
    assert outcome.agent_steps[0]["observation"]["results"][0]["content"].strip() == "It is 42."


class SecondAgent(AgentWorkflow):
    async def run(self, ctx: AgentWorkflowContext) -> None:
        agent_for(ctx)
        await agent_for(ctx).invoke_async()


async def test_second_agent_fails_the_workflow(roll: Any) -> None:
    outcome = await roll(SecondAgent)
    assert outcome.completion["err_category"] == "validation_error"
    assert "already has a sample source" in outcome.completion["err_message"]
    assert (outcome.grader["status"], outcome.trajectory) == ("failure", None)


async def test_tools_of_an_mcp_server(policy: Any, roll: Any, mcp_server_script: str) -> None:
    server = StdioServerParameters(command=sys.executable, args=[mcp_server_script])

    class McpTools(AgentWorkflow):
        async def run(self, ctx: AgentWorkflowContext) -> None:
            with MCPClient(lambda: stdio_client(server), startup_timeout=120) as client:
                await agent_for(ctx, tools=client.list_tools_sync()).invoke_async()

    outcome = await roll(McpTools)
    assert outcome.completion["err_message"] is None
    assert policy.requests[0].body["tools"][0]["function"]["name"] == "multiply"
    assert outcome.sample["reward"] == 1.0
    assert outcome.agent_steps[0]["tool_calls"][0]["arguments"] == {"a": 6, "b": 7}
    assert outcome.agent_steps[0]["observation"]["results"][0]["source_call_id"] == "call_1"
    assert "42" in outcome.agent_steps[0]["observation"]["results"][0]["content"]


class Product(BaseModel):
    """The product."""

    value: int


class StructuredOutput(AgentWorkflow):
    result: Any = None

    async def run(self, ctx: AgentWorkflowContext) -> None:
        answer = await agent_for(ctx, tools=[]).invoke_async(structured_output_model=Product)
        StructuredOutput.result = answer.structured_output


async def test_structured_output_is_a_tool_call(policy: Any, roll: Any, call: Any, in_turn: Any) -> None:
    policy.script = in_turn({"tool_calls": [call("Product", value=42)]}, "unused")
    StructuredOutput.result = None
    outcome = await roll(StructuredOutput)
    assert outcome.completion["err_message"] is None
    assert StructuredOutput.result == Product(value=42)
    assert policy.requests[0].body["tools"][0]["function"]["name"] == "Product"
    assert outcome.agent_steps[0]["tool_calls"][0]["arguments"] == {"value": 42}


async def test_turn_of_nothing_but_reasoning_is_kept(policy: Any, roll: Any, in_turn: Any) -> None:
    policy.script = in_turn({"content": None, "reasoning_content": "I am not done th"})
    outcome = await roll(ToolUse)
    (step,) = outcome.agent_steps
    assert (step["message"], step["reasoning_content"]) == ("", "I am not done th")
    assert step["metrics"]["completion_tokens"] == 3


async def test_refused_call_fails_the_workflow_as_agent_error(policy: Any, roll: Any, in_turn: Any) -> None:
    policy.script = in_turn((400, {"error": {"message": "prompt too long", "code": "bad"}}))
    outcome = await roll(ToolUse)
    assert outcome.callbacks == [("completion", "failure"), ("grader", "failure")]
    assert outcome.completion["err_category"] == "agent_error"
    assert "prompt too long" in outcome.completion["err_message"]
    assert (outcome.grader["sample"], outcome.trajectory) == (None, None)
    assert len(policy.requests) == 1


async def test_stream_that_breaks_off_fails_the_workflow(policy: Any, roll: Any) -> None:
    policy.in_pieces = True
    policy.stream_error = "the policy is gone"
    outcome = await roll(ToolUse)
    assert outcome.callbacks == [("completion", "failure"), ("grader", "failure")]
    assert outcome.completion["err_category"] == "agent_error"
    assert "the policy is gone" in outcome.completion["err_message"]
    assert len(policy.requests) == 1


async def test_busy_endpoint_is_asked_again(policy: Any, roll: Any, in_turn: Any) -> None:
    policy.script = in_turn((503, {"error": {"message": "busy"}}), "42")
    outcome = await roll(ToolUse)
    assert outcome.sample["reward"] == 1.0
    assert len(policy.requests) == 2


async def test_own_openai_key_never_reaches_the_controller(
    policy: Any, roll: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-private")
    outcome = await roll(ToolUse, llm_api_key=None, controller_api_key=None)
    assert outcome.sample["reward"] == 1.0
    assert "sk-private" not in json.dumps([request.headers for request in policy.requests])


async def test_missing_url_says_what_to_do(roll: Any) -> None:
    outcome = await roll(ToolUse, chat_completions_url="")
    assert "OSMOSIS_CHAT_COMPLETIONS_URL" in outcome.completion["err_message"]


class History(AgentWorkflow):
    async def run(self, ctx: AgentWorkflowContext) -> None:
        agent = agent_for(ctx)
        await agent.invoke_async()
        await agent.invoke_async("Are you sure?")


async def test_several_calls_of_one_agent_are_one_sample(policy: Any, roll: Any, in_turn: Any) -> None:
    policy.script = in_turn("It is 41.", "Sorry, 42.")
    earlier = [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hi"},
        {"role": "user", "content": "6 times 7?"},
    ]
    outcome = await roll(History, prompt=earlier)
    assert [step["message"] for step in outcome.document["steps"]] == [
        "Hello",
        "Hi",
        "6 times 7?",
        "It is 41.",
        "Are you sure?",
        "Sorry, 42.",
    ]
    given, first, second = outcome.agent_steps
    assert "metrics" not in given
    assert "model_name" not in given
    assert first["metrics"] == second["metrics"]


def report(*token_ids: list[int]) -> Any:
    """An acknowledgement that tells of the calls the policy answered."""
    calls = [
        {
            "prompt_tokens": 11,
            "completion_tokens": len(ids),
            "completion_token_ids": ids,
            "logprobs": [-0.5] * len(ids),
        }
        for ids in token_ids
    ]
    samples = {"any": {"model_name": "policy-7", "llm_call_metrics": calls}}
    return [(200, {"ok": True, "trajectory": {"samples": samples}})]


async def test_reported_calls_join_their_steps(policy: Any, controller: Any, roll: Any) -> None:
    controller.answers["/completion"] = report([1, 2], [3])
    outcome = await roll(ToolUse)
    assert [step["metrics"]["completion_token_ids"] for step in outcome.agent_steps] == [[1, 2], [3]]
    assert [step["metrics"]["cached_tokens"] for step in outcome.agent_steps] == [4, 4]
    assert outcome.document["agent"]["model_name"] == "policy-7"
    assert outcome.document["final_metrics"]["total_completion_tokens"] == 3
    assert "unmatched_llm_call_metrics" not in outcome.document["extra"]["osmosis"]


async def test_reported_calls_of_a_nested_agent_stay_apart(
    policy: Any, controller: Any, roll: Any, call: Any, in_turn: Any
) -> None:
    controller.answers["/completion"] = report([1, 2], [3], [4])
    ask = call("ask_expert", question="6 times 7?", input="6 times 7?")
    policy.script = in_turn({"tool_calls": [ask]}, "It is 42.", "So 42.")
    outcome = await roll(Nested)
    assert len(outcome.agent_steps) == 2
    unmatched = outcome.document["extra"]["osmosis"]["unmatched_llm_call_metrics"]
    assert [made["completion_token_ids"] for made in unmatched] == [[1, 2], [3], [4]]
    assert [step["metrics"]["prompt_tokens"] for step in outcome.agent_steps] == [11, 11]
    assert outcome.document["final_metrics"]["total_prompt_tokens"] == 33

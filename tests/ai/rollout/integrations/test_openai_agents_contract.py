"""The names and rules of the OpenAI Agents integration, row by row."""

import dataclasses
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import agents as framework
import pytest
from agents import ModelSettings
from agents.models.interface import Model, ModelTracing
from openai.types.responses import ResponseOutputMessage

from osmosis_ai.rollout import RolloutContext, RolloutSample, SampleSource
from osmosis_ai.rollout.integrations.agents import openai_agents
from osmosis_ai.rollout.integrations.agents.openai_agents import (
    OsmosisAgent,
    OsmosisLitellmModel,
    OsmosisMemorySession,
    OsmosisRolloutModel,
    SessionSampleSource,
)

URL = "http://127.0.0.1:9/v1"
CALL: tuple[Any, ...] = (None, "x", ModelSettings(), [], None, [], ModelTracing.DISABLED)


class NoConversation(SampleSource):
    async def get_sample(self) -> RolloutSample:
        return RolloutSample()


def test_names_that_users_import() -> None:
    assert set(openai_agents.__all__) == {
        "OsmosisAgent",
        "OsmosisLitellmModel",
        "OsmosisMemorySession",
        "OsmosisRolloutModel",
        "SessionSampleSource",
    }
    assert OsmosisAgent.__module__ == openai_agents.__name__
    assert issubclass(OsmosisAgent, framework.Agent)
    assert issubclass(OsmosisRolloutModel, Model)
    assert dataclasses.is_dataclass(OsmosisAgent)


def test_import_loads_no_litellm_and_exports_no_traces() -> None:
    code = (
        f"import os, sys; os.environ['OPENAI_API_KEY'] = 'sk-private'; import {openai_agents.__name__}; "
        "from agents.tracing import get_trace_provider as get; "
        "print('litellm' in sys.modules, get()._multi_processor._processors)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False ()"


async def test_placeholder_keeps_its_arguments_and_cannot_be_called() -> None:
    model = OsmosisRolloutModel(anything=1)
    assert model.litellm_kwargs == {"anything": 1}
    with pytest.raises(NotImplementedError, match="placeholder"):
        await model.get_response(*CALL)
    with pytest.raises(NotImplementedError, match="placeholder"):
        model.stream_response(*CALL)


def test_model_needs_a_rollout() -> None:
    with pytest.raises(RuntimeError, match="RolloutContext"):
        OsmosisAgent(name="a", model=OsmosisRolloutModel())
    with pytest.raises(RuntimeError, match="RolloutContext"):
        OsmosisLitellmModel()


def test_agent_swaps_the_placeholder() -> None:
    with RolloutContext(URL, "k", "r") as ctx:
        agent = OsmosisAgent(name="a", instructions="i", model=OsmosisRolloutModel())
        other = OsmosisAgent(name="a", model="gpt-x")
    assert isinstance(agent.model, OsmosisLitellmModel)
    assert (agent.model.model, agent.model.base_url, agent.model.api_key) == (
        "openai/osmosis-rollout",
        URL,
        "k",
    )
    assert (agent.name, agent.instructions) == ("a", "i")
    assert other.model == "gpt-x"
    assert agent.clone(name="b").model is agent.model
    assert ctx.sample_source is None


async def test_session_outside_of_a_rollout_is_a_plain_one() -> None:
    session = OsmosisMemorySession()
    assert (len(session.session_id), session.items) == (32, [])
    assert session.session_id != OsmosisMemorySession().session_id
    assert await session.pop_item() is None
    await session.add_items([1, 2, 3])
    assert await session.get_items() == [1, 2, 3]
    assert await session.get_items(limit=2) == [2, 3]
    assert await session.get_items(0) == [1, 2, 3]
    assert await session.pop_item() == 3
    await session.clear_session()
    assert await session.get_items() == []


def test_session_takes_no_arguments() -> None:
    with pytest.raises(TypeError):
        OsmosisMemorySession("name")  # type: ignore[call-arg]


async def test_session_of_elsewhere_is_refused_inside_a_rollout() -> None:
    session = OsmosisMemorySession()
    await session.add_items([1])
    with RolloutContext(URL, "k", "r"):
        with pytest.raises(RuntimeError, match="not registered"):
            await session.get_items()
        with pytest.raises(RuntimeError, match="not registered"):
            await session.add_items([2])
        assert await session.pop_item() == 1
        await session.clear_session()


async def test_one_session_per_rollout() -> None:
    with RolloutContext(URL, "k", "r") as ctx:
        session = OsmosisMemorySession()
        with pytest.raises(ValueError, match="already has a sample source"):
            OsmosisMemorySession()
        await session.add_items([{"role": "user", "content": "x"}])
        sample = await ctx.get_sample()
    assert isinstance(ctx.sample_source, SessionSampleSource)
    assert ctx.sample_source.session is session
    assert sample is not None
    assert sample.messages == session.items
    assert sample.trajectory_messages == [{"role": "user", "content": "x"}]


async def test_model_without_a_session_refuses_to_answer() -> None:
    with RolloutContext(URL, "k", "r") as ctx:
        model = OsmosisLitellmModel()
        with pytest.raises(RuntimeError, match="OsmosisMemorySession"):
            await model.get_response(*CALL)
        with pytest.raises(RuntimeError, match="OsmosisMemorySession"):
            model._merge_headers(ModelSettings())
        ctx.set_sample_source(NoConversation())
        headers = model._merge_headers(ModelSettings(extra_headers={"x-own": "1"}))
    assert headers["x-own"] == "1"
    assert not [name for name in headers if "rollout" in name.lower() or "sample" in name.lower()]
    with pytest.raises(RuntimeError, match="OsmosisMemorySession"):
        model._merge_headers(ModelSettings())


MESSAGE = ResponseOutputMessage(id="m", content=[], role="assistant", status="completed", type="message")


def completed(usage: Any) -> Any:
    return SimpleNamespace(
        type="response.completed", response=SimpleNamespace(output=[MESSAGE], usage=usage, created_at=1.0)
    )


async def respond(monkeypatch: pytest.MonkeyPatch, *events: Any) -> Any:
    async def stream_response(self: Any, *args: Any, **kwargs: Any) -> Any:
        for event in events:
            yield event

    monkeypatch.setattr(OsmosisLitellmModel, "stream_response", stream_response)
    with RolloutContext(URL, "k", "r"):
        return await OsmosisLitellmModel().get_response(*CALL)


async def test_answer_is_put_together_from_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    usage = SimpleNamespace(
        input_tokens=5, output_tokens=2, total_tokens=7, input_tokens_details=None, output_tokens_details=None
    )
    answer = await respond(monkeypatch, SimpleNamespace(type="response.created"), completed(usage))
    assert answer.output == [MESSAGE]
    assert answer.response_id is None
    assert (answer.usage.requests, answer.usage.input_tokens, answer.usage.output_tokens) == (1, 5, 2)
    assert answer.usage.total_tokens == 7
    assert answer.usage.input_tokens_details.cached_tokens == 0
    assert answer.usage.output_tokens_details.reasoning_tokens == 0


async def test_answer_without_usage_or_end(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = await respond(monkeypatch, completed(None))
    assert (answer.output, answer.usage.total_tokens) == ([MESSAGE], 0)
    answer = await respond(monkeypatch, SimpleNamespace(type="response.created"))
    assert (answer.output, answer.response_id) == ([], None)


async def test_unconvertible_conversation_keeps_the_sample(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*args: Any, **kwargs: Any) -> Any:
        raise TypeError("no")

    monkeypatch.setattr(openai_agents.Converter, "items_to_messages", broken)
    source = SessionSampleSource(SimpleNamespace(items=[{"role": "user", "content": "x"}]))
    sample = await source.get_sample()
    assert (len(sample.messages), sample.trajectory_messages) == (1, None)
    assert "Failed to convert OpenAI Agents" in caplog.text


async def test_conversation_without_calls_is_what_the_framework_would_send(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    converted = [{"role": "user", "content": "all of it"}]
    monkeypatch.setattr(openai_agents.Converter, "items_to_messages", lambda items: converted)
    items = [{"role": role, "content": "x"} for role in ("user", "assistant")]
    sample = await SessionSampleSource(SimpleNamespace(items=items)).get_sample()
    assert (sample.messages, sample.trajectory_messages) == (items, converted)


async def test_conversation_without_call_notes_still_converts() -> None:
    items = [
        {"role": "user", "content": "q"},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "1"},
        {"role": "assistant", "content": "done"},
    ]
    sample = await SessionSampleSource(SimpleNamespace(items=items)).get_sample()
    assert sample.messages == items
    assert sample.trajectory_messages is not None
    roles = [message["role"] for message in sample.trajectory_messages]
    assert roles == ["user", "assistant", "tool", "assistant"]
    assert sample.trajectory_messages[1]["reasoning_content"] == "hm"

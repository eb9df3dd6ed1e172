"""Registration, placeholders and conversions of the two integrations, without a policy."""

import copy
import dataclasses
from typing import Any

import pytest
from agents import ModelSettings
from agents.models.interface import ModelTracing
from agents.tracing import get_trace_provider

from osmosis_ai.rollout import AgentWorkflowConfig, RolloutContext
from osmosis_ai.rollout.integrations.agents import openai_agents, strands
from osmosis_ai.rollout.integrations.agents.policy_client import MODEL_ID, PolicyClient


class Config(AgentWorkflowConfig):
    name: str = "w"
    model: Any = strands.OsmosisRolloutModel(params={"temperature": 1.0})


def strands_agent(model: Any = None, **kwargs: Any) -> Any:
    return strands.OsmosisStrandsAgent(
        model=model or strands.OsmosisRolloutModel(), callback_handler=None, **kwargs
    )


def test_placeholders_need_a_rollout() -> None:
    with pytest.raises(RuntimeError, match="RolloutContext"):
        strands_agent()
    with pytest.raises(RuntimeError, match="RolloutContext"):
        openai_agents.OsmosisAgent(name="a", model=openai_agents.OsmosisRolloutModel())


async def test_placeholders_cannot_be_called() -> None:
    with pytest.raises(NotImplementedError, match="placeholder"):
        strands.OsmosisRolloutModel().stream([])
    with pytest.raises(NotImplementedError, match="placeholder"):
        await openai_agents.OsmosisRolloutModel().get_response()
    with pytest.raises(NotImplementedError, match="placeholder"):
        openai_agents.OsmosisRolloutModel().stream_response()


def test_placeholder_lives_in_a_config_and_is_copied_with_it() -> None:
    assert copy.deepcopy(Config()).model.litellm_kwargs == {"params": {"temperature": 1.0}}


async def test_one_agent_or_session_per_rollout() -> None:
    with RolloutContext("http://127.0.0.1:9", "k", "r"):
        strands_agent()
        with pytest.raises(ValueError, match="already has a sample source"):
            strands_agent()
        with pytest.raises(ValueError, match="already has a sample source"):
            openai_agents.OsmosisMemorySession()


def test_strands_agent_is_bound_to_the_rollout() -> None:
    placeholder = strands.OsmosisRolloutModel(params={"top_p": 0.9}, client_args={"timeout": 5})
    with RolloutContext("http://127.0.0.1:9/v1", "k", "r") as ctx:
        agent = strands.OsmosisStrandsAgent(
            placeholder, [{"role": "user", "content": "x"}], callback_handler=None
        )
    assert agent.model.client_args == {"timeout": 5, "base_url": "http://127.0.0.1:9/v1", "api_key": "k"}
    assert agent.model.config == {"model_id": MODEL_ID, "params": {"top_p": 0.9}}
    assert isinstance(ctx.sample_source, strands.StrandsAgentSampleSource)
    assert [(message["role"], message["content"]) for message in agent.messages] == [
        ("user", [{"text": "x"}])
    ]


def test_other_models_make_ordinary_agents() -> None:
    model = strands.OsmosisPolicyModel(rollout=RolloutContext("http://127.0.0.1:9"))
    with RolloutContext() as ctx:
        assert strands_agent(model).model is model
        assert openai_agents.OsmosisAgent(name="a", model="gpt-x").model == "gpt-x"
    assert ctx.sample_source is None


async def test_unconvertible_conversations_keep_the_sample(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*args: Any, **kwargs: Any) -> Any:
        raise TypeError("no")

    monkeypatch.setattr(strands.LiteLLMModel, "format_request_messages", broken)
    monkeypatch.setattr(openai_agents.Converter, "items_to_messages", broken)
    with RolloutContext("http://127.0.0.1:9", "k", "r") as ctx:
        strands_agent(messages=[{"role": "user", "content": "x"}])
        sample = await ctx.get_sample()
    assert sample is not None
    assert (len(sample.messages), sample.trajectory_messages) == (1, None)
    assert "Failed to convert Strands" in caplog.text

    with RolloutContext() as ctx:
        await openai_agents.OsmosisMemorySession().add_items([{"role": "user", "content": "x"}])
        sample = await ctx.get_sample()
    assert sample is not None
    assert (len(sample.messages), sample.trajectory_messages) == (1, None)
    assert "Failed to convert OpenAI Agents" in caplog.text


async def test_session_is_a_session() -> None:
    plain = openai_agents.OsmosisMemorySession()
    assert await plain.pop_item() is None
    await plain.add_items([1, 2, 3])
    assert (await plain.get_items(), await plain.get_items(2), await plain.get_items(0)) == (
        [1, 2, 3],
        [2, 3],
        [1, 2, 3],
    )
    assert await plain.pop_item() == 3
    assert len(plain.session_id) == 32
    with RolloutContext():
        with pytest.raises(RuntimeError, match="not registered"):
            await plain.get_items()
        with pytest.raises(RuntimeError, match="not registered"):
            await plain.add_items([4])
    await plain.clear_session()
    assert await plain.get_items() == []


async def test_policy_without_a_session_refuses_to_answer() -> None:
    with RolloutContext("http://127.0.0.1:9/v1", "k", "r") as ctx:
        agent = openai_agents.OsmosisAgent(name="a", model=openai_agents.OsmosisRolloutModel())
        model = agent.model
        with pytest.raises(RuntimeError, match="OsmosisMemorySession"):
            await model.get_response(None, "x", ModelSettings(), [], None, [], ModelTracing.DISABLED)
        ctx.set_sample_source(strands.StrandsAgentSampleSource(None))
        headers = model._merge_headers(ModelSettings(extra_headers={"x-own": "1"}))
    assert (model.base_url, model.api_key, model.model) == ("http://127.0.0.1:9/v1", "k", MODEL_ID)
    assert headers["x-own"] == "1"
    assert not [name for name in headers if "rollout" in name.lower() or "sample" in name.lower()]
    assert agent.clone(name="b").model is model
    assert dataclasses.is_dataclass(agent)


def test_nothing_is_exported_as_traces() -> None:
    assert get_trace_provider()._multi_processor._processors == ()


async def test_transcript_without_call_notes_still_converts() -> None:
    items = [
        {"role": "user", "content": "q"},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "1"},
        {"role": "assistant", "content": "done"},
    ]
    with RolloutContext() as ctx:
        await openai_agents.OsmosisMemorySession().add_items(items)
        sample = await ctx.get_sample()
    assert sample is not None
    assert sample.messages == items
    assert sample.trajectory_messages is not None
    assert [message["role"] for message in sample.trajectory_messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert sample.trajectory_messages[1]["reasoning_content"] == "hm"


async def test_other_models_keep_their_name_on_the_wire(policy: Any) -> None:
    async with PolicyClient(base_url=policy.url, api_key="k") as client:
        for model in (MODEL_ID, "judge"):
            await client.chat.completions.create(model=model, messages=[{"role": "user", "content": "x"}])
    assert [request.body["model"] for request in policy.requests] == ["osmosis-rollout", "judge"]


def test_classes_report_their_module() -> None:
    assert strands.OsmosisStrandsAgent.__module__ == strands.__name__
    assert openai_agents.OsmosisAgent.__module__ == openai_agents.__name__

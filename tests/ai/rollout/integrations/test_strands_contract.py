"""The names and rules of the Strands integration, row by row."""

import copy
import inspect
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import strands as framework

from osmosis_ai.rollout import AgentWorkflowConfig, RolloutContext
from osmosis_ai.rollout.integrations.agents import strands
from osmosis_ai.rollout.integrations.agents.policy_client import MODEL_ID, PolicyClient
from osmosis_ai.rollout.integrations.agents.strands import (
    OsmosisRolloutModel,
    OsmosisStrandsAgent,
    StrandsAgentSampleSource,
)

URL = "http://127.0.0.1:9/v1"


class Config(AgentWorkflowConfig):
    name: str = "w"
    model: Any = OsmosisRolloutModel(params={"temperature": 1.0})


def bound_agent(**kwargs: Any) -> Any:
    return OsmosisStrandsAgent(model=OsmosisRolloutModel(), callback_handler=None, **kwargs)


def test_names_that_users_import() -> None:
    assert set(strands.__all__) == {"OsmosisRolloutModel", "OsmosisStrandsAgent", "StrandsAgentSampleSource"}
    assert OsmosisStrandsAgent.__module__ == strands.__name__
    assert issubclass(OsmosisStrandsAgent, framework.Agent)
    assert strands.StrandsAgent is framework.Agent
    assert issubclass(OsmosisRolloutModel, strands.LiteLLMModel)


def test_litellm_is_not_imported() -> None:
    code = f"import sys, {strands.__name__}; print('litellm' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_placeholder_keeps_its_arguments_and_cannot_be_called() -> None:
    model = OsmosisRolloutModel(params={"temperature": 0.3}, stream=False)
    assert model.litellm_kwargs == {"params": {"temperature": 0.3}, "stream": False}
    with pytest.raises(NotImplementedError, match="placeholder"):
        model.stream([])
    with pytest.raises(NotImplementedError, match="placeholder"):
        model.structured_output(object, [])


def test_placeholder_lives_in_a_config_and_is_copied_with_it() -> None:
    assert copy.deepcopy(Config()).model.litellm_kwargs == {"params": {"temperature": 1.0}}


def test_placeholder_needs_a_rollout() -> None:
    with pytest.raises(RuntimeError, match="RolloutContext"):
        bound_agent()


def test_agent_is_bound_to_the_rollout() -> None:
    placeholder = OsmosisRolloutModel(params={"top_p": 0.9}, client_args={"timeout": 5}, stream=False)
    with RolloutContext(URL, "k", "r") as ctx:
        agent = OsmosisStrandsAgent(
            placeholder, [{"role": "user", "content": "x"}], callback_handler=None, name="n"
        )
    assert isinstance(agent.model, strands.LiteLLMModel)
    assert not isinstance(agent.model, OsmosisRolloutModel)
    assert agent.model.client_args == {"timeout": 5, "api_base": URL, "api_key": "k"}
    assert agent.model.config == {
        "model_id": "openai/osmosis-rollout",
        "params": {"top_p": 0.9},
        "stream": False,
    }
    assert isinstance(ctx.sample_source, StrandsAgentSampleSource)
    assert ctx.sample_source.agent is agent
    assert agent.name == "n"
    assert agent.messages[0]["content"] == [{"text": "x"}]


def test_one_agent_per_rollout() -> None:
    with RolloutContext(URL, "k", "r"):
        bound_agent()
        with pytest.raises(ValueError, match="already has a sample source"):
            bound_agent()


def test_source_is_registered_before_the_parent_is_constructed(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    def construct(self: Any, *args: Any, **kwargs: Any) -> None:
        seen.update(kwargs, source=ctx.sample_source, args=args)

    monkeypatch.setattr(strands.StrandsAgent, "__init__", construct)
    with RolloutContext(URL, "k", "r") as ctx:
        agent = OsmosisStrandsAgent(
            model=OsmosisRolloutModel(), messages=[{"role": "user", "content": "x", "name": "n"}], tools=[1]
        )
    assert seen["source"].agent is agent
    assert seen["args"] == ()
    assert seen["tools"] == [1]
    assert seen["messages"] == [{"role": "user", "content": [{"text": "x"}]}]
    assert seen["model"].config["model_id"] == MODEL_ID


@pytest.mark.parametrize("messages", [None, []])
def test_no_messages_are_passed_through(monkeypatch: pytest.MonkeyPatch, messages: Any) -> None:
    seen: dict[str, Any] = {}
    monkeypatch.setattr(strands.StrandsAgent, "__init__", lambda self, **kwargs: seen.update(kwargs))
    with RolloutContext(URL, "k", "r"):
        bound_agent(messages=messages)
    assert seen["messages"] is messages


def test_content_blocks_are_left_as_they_are() -> None:
    blocks = [{"text": "a"}, {"text": "b"}]
    with RolloutContext(URL, "k", "r"):
        agent = bound_agent(messages=[{"role": "user", "content": blocks}])
    assert agent.messages[0]["content"] == blocks


def test_any_other_model_makes_an_ordinary_agent() -> None:
    with RolloutContext(URL, "k") as ctx:
        model = strands.LiteLLMModel(rollout=ctx)
        agent = OsmosisStrandsAgent(
            model=model, messages=[{"role": "user", "content": "x"}], callback_handler=None
        )
    assert agent.model is model
    assert ctx.sample_source is None
    assert agent.messages[0]["content"] == [{"text": "x"}]


async def test_sample_is_a_copy_of_the_native_list() -> None:
    with RolloutContext(URL, "k", "r") as ctx:
        agent = bound_agent(messages=[{"role": "user", "content": "x"}])
        sample = await ctx.get_sample()
        assert sample is not None
        assert sample.messages == agent.messages
        assert sample.messages is not agent.messages
        agent.messages.append({"role": "assistant", "content": [{"text": "y"}]})
        later = await ctx.get_sample()
    assert (len(sample.messages), later and len(later.messages)) == (1, 2)
    assert later is not None
    assert [message["role"] for message in later.trajectory_messages or []] == ["user", "assistant"]
    assert later.reward is None
    assert later.label is None


async def test_unconvertible_conversation_keeps_the_sample(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*args: Any, **kwargs: Any) -> Any:
        raise TypeError("no")

    monkeypatch.setattr(strands.LiteLLMModel, "format_request_messages", broken)
    sample = await StrandsAgentSampleSource(
        SimpleNamespace(messages=[{"role": "user", "content": [{"text": "x"}]}])
    ).get_sample()
    assert (len(sample.messages), sample.trajectory_messages) == (1, None)
    assert "Failed to convert Strands" in caplog.text


async def test_conversation_without_calls_is_what_the_framework_would_send(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    converted = [{"role": "user", "content": "all of it"}]
    monkeypatch.setattr(strands.LiteLLMModel, "format_request_messages", lambda messages: converted)
    native = [{"role": role, "content": [{"text": "x"}]} for role in ("user", "assistant")]
    sample = await StrandsAgentSampleSource(SimpleNamespace(messages=native)).get_sample()
    assert (sample.messages, sample.trajectory_messages) == (native, converted)


async def test_other_models_keep_their_name_on_the_wire(policy: Any) -> None:
    async with PolicyClient(base_url=policy.url, api_key="k") as client:
        for model in (MODEL_ID, "judge"):
            await client.chat.completions.create(model=model, messages=[{"role": "user", "content": "x"}])
    assert [request.body["model"] for request in policy.requests] == ["osmosis-rollout", "judge"]


def test_prompt_and_model_may_be_given_by_position() -> None:
    parameters = list(inspect.signature(OsmosisStrandsAgent.__init__).parameters)
    assert parameters[:3] == ["self", "model", "messages"]
    assert list(inspect.signature(framework.Agent.__init__).parameters)[:3] == parameters[:3]

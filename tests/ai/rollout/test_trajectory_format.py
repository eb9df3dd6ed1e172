"""Whatever a conversation holds, its document is ATIF v1.7: by our models, by a schema of its own, and by Harbor's models."""

import copy
import json
import math
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest
from harbor.models.trajectories import Trajectory as HarborTrajectory
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from osmosis_ai.rollout import RolloutSample
from osmosis_ai.rollout.trajectory import atif, convert_sample_to_trajectory
from osmosis_ai.rollout.trajectory.report import LlmCallMetrics, SampleReport

type Json = dict[str, Any]


def whole_document() -> Json:
    """A document that uses every field of the format."""
    image = {"type": "image", "source": {"media_type": "image/png", "path": "images/1.png"}}
    metrics = {
        "prompt_tokens": 3,
        "completion_tokens": 1,
        "cached_tokens": 2,
        "cost_usd": 0.5,
        "prompt_token_ids": [1, 2, 3],
        "completion_token_ids": [4],
        "logprobs": [-0.25],
        "extra": {"a": None},
    }
    result = {
        "source_call_id": "c1",
        "content": [{"type": "text", "text": "42"}, image],
        "subagent_trajectory_ref": [
            {"trajectory_id": "t", "session_id": "s", "trajectory_path": "p", "extra": {}}
        ],
        "extra": {},
    }
    agent_step = {
        "step_id": 2,
        "timestamp": "2026-01-02T03:04:05+00:00",
        "source": "agent",
        "model_name": "m",
        "reasoning_effort": "low",
        "message": "",
        "reasoning_content": "hm",
        "tool_calls": [{"tool_call_id": "c1", "function_name": "f", "arguments": {"a": 1}, "extra": {}}],
        "observation": {"results": [result]},
        "metrics": metrics,
        "is_copied_context": False,
        "llm_call_count": 1,
        "extra": {},
    }
    inner = {
        "schema_version": "ATIF-v1.7",
        "trajectory_id": "inner",
        "agent": {"name": "b", "version": "2"},
        "steps": [{"step_id": 1, "source": "system", "message": "x"}],
    }
    return {
        "schema_version": "ATIF-v1.7",
        "session_id": "s",
        "trajectory_id": "t",
        "agent": {"name": "a", "version": "1", "model_name": "m", "tool_definitions": [{}], "extra": {}},
        "steps": [
            {"step_id": 1, "source": "user", "message": [{"type": "text", "text": "q"}, image]},
            agent_step,
        ],
        "notes": "n",
        "final_metrics": {
            "total_prompt_tokens": 3,
            "total_completion_tokens": 1,
            "total_cached_tokens": 2,
            "total_cost_usd": 0.5,
            "total_steps": 2,
            "extra": {},
        },
        "continued_trajectory_ref": "c",
        "extra": {},
        "subagent_trajectories": [inner],
    }


BREAKS: dict[str, Callable[[Json], Any]] = {
    "unknown field": lambda d: d.update(note="x"),
    "unknown field of a step": lambda d: d["steps"][0].update(note="x"),
    "no agent": lambda d: d.pop("agent"),
    "no version": lambda d: d["agent"].pop("version"),
    "no steps": lambda d: d.update(steps=[]),
    "wrong number": lambda d: d["steps"][1].update(step_id=3),
    "unknown source": lambda d: d["steps"][0].update(source="tool"),
    "no message": lambda d: d["steps"][0].pop("message"),
    "reasoning of a user": lambda d: d["steps"][0].update(reasoning_content="r"),
    "metrics of a user": lambda d: d["steps"][0].update(metrics={}),
    "usage without a call": lambda d: d["steps"][1].update(llm_call_count=0),
    "no time": lambda d: d["steps"][1].update(timestamp="yesterday"),
    "result of no call": lambda d: d["steps"][1]["observation"]["results"][0].update(source_call_id="x"),
    "arguments as text": lambda d: d["steps"][1]["tool_calls"][0].update(arguments="{}"),
    "text without text": lambda d: d["steps"][0]["message"][0].pop("text"),
    "image with text": lambda d: d["steps"][0]["message"][1].update(text="x"),
    "image of an unknown kind": lambda d: d["steps"][0]["message"][1]["source"].update(
        media_type="image/bmp"
    ),
    "reference to nothing": lambda d: d["steps"][1]["observation"]["results"][0].update(
        subagent_trajectory_ref=[{"session_id": "s"}]
    ),
    "inner document without an id": lambda d: d["subagent_trajectories"][0].pop("trajectory_id"),
    "negative count": lambda d: d["final_metrics"].update(total_steps=-1),
}


def test_a_document_with_every_field_is_accepted_by_all(check_atif: Any) -> None:
    document = whole_document()
    check_atif(document)
    HarborTrajectory.model_validate(document)
    assert atif.Trajectory.model_validate(document).to_json_dict(exclude_none=True) == document


@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_document_is_refused_by_all(name: str, check_atif: Any) -> None:
    document = copy.deepcopy(whole_document())
    BREAKS[name](document)
    with pytest.raises((jsonschema.ValidationError, AssertionError, ValueError)):
        check_atif(document)
    with pytest.raises(ValueError):
        HarborTrajectory.model_validate(document)
    with pytest.raises(ValueError):
        atif.Trajectory.model_validate(document)


class Foreign:
    def __repr__(self) -> str:
        return "<foreign>"


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=6),
    st.just(Foreign()),
    st.just("\ud800"),
)
anything = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)
calls = st.fixed_dictionaries(
    {},
    optional={
        "id": st.one_of(st.sampled_from(["c1", "c2", ""]), scalars),
        "function": st.one_of(
            anything,
            st.fixed_dictionaries({"name": scalars, "arguments": st.one_of(st.just('{"a": 1}'), anything)}),
        ),
    },
)
messages = st.fixed_dictionaries(
    {},
    optional={
        "role": st.one_of(
            st.sampled_from(
                ["system", "developer", "user", "assistant", "assistant", "tool", "function", "critic"]
            ),
            scalars,
        ),
        "content": st.one_of(
            st.text(max_size=6),
            st.just([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]),
            anything,
        ),
        "reasoning_content": anything,
        "tool_calls": st.one_of(st.lists(st.one_of(calls, anything), max_size=3), anything),
        "tool_call_id": st.one_of(st.sampled_from(["c1", "c2"]), scalars),
        "usage": st.one_of(
            anything,
            st.fixed_dictionaries(
                {"prompt_tokens": scalars, "completion_tokens": scalars, "cost_usd": scalars}
            ),
        ),
        "model": scalars,
        "created_at": scalars,
        "timestamp": st.one_of(st.just("2026-01-02T03:04:05Z"), anything),
        "extra": anything,
    },
)


@settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    conversation=st.lists(messages, min_size=1, max_size=5),
    telemetry=st.dictionaries(st.text(max_size=4), anything, max_size=3),
    calls=st.none() | st.lists(st.builds(LlmCallMetrics, prompt_tokens=st.integers(0, 9)), max_size=2),
)
@example(conversation=[{"role": "assistant", "usage": {"prompt_tokens": math.nan}}], telemetry={}, calls=None)
def test_any_conversation_becomes_a_valid_document(
    check_atif: Any, conversation: list[Json], telemetry: Json, calls: list[LlmCallMetrics] | None
) -> None:
    sample = RolloutSample(
        messages=[], trajectory_messages=conversation, reward=1.0, metrics=telemetry, extra_fields=telemetry
    )
    trajectory = convert_sample_to_trajectory(
        sample,
        rollout_id="r",
        request_metadata=telemetry,
        report=None if calls is None else SampleReport(llm_call_metrics=calls),
    )
    text = atif.format_trajectory_json(trajectory.to_json_dict(exclude_none=True))
    document = json.loads(text)
    check_atif(document)
    HarborTrajectory.model_validate(document)
    assert text.isascii()
    assert document["extra"]["osmosis"]["reward"] == 1.0
    tool_results = [message for message in conversation if message.get("role") in ("tool", "function")]
    observed = [step["observation"]["results"] for step in document["steps"] if "observation" in step]
    assert sum(len(results) for results in observed) == len(tool_results)

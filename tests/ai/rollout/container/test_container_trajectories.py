"""Chat messages from ATIF documents."""

import pytest

from osmosis_ai.rollout import RolloutSample
from osmosis_ai.rollout.container.trajectories import messages_from_trajectory
from osmosis_ai.rollout.trajectory import convert_sample_to_trajectory


def test_steps_become_messages() -> None:
    document = {
        "steps": [
            {"source": "system", "message": "be brief"},
            {"source": "user", "message": "6*7?"},
            {
                "source": "agent",
                "message": "let me see",
                "tool_calls": [
                    {"tool_call_id": "c1", "function_name": "multiply", "arguments": {"a": 6, "b": 7}}
                ],
                "observation": {"results": [{"source_call_id": "c1", "content": "42"}, {"content": None}]},
            },
            {"source": "environment", "message": "done"},
        ]
    }
    assert messages_from_trajectory(document) == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "6*7?"},
        {
            "role": "assistant",
            "content": "let me see",
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "multiply", "arguments": '{"a": 6, "b": 7}'},
                }
            ],
        },
        {"role": "tool", "content": "42", "tool_call_id": "c1"},
        {"role": "tool", "content": ""},
        {"role": "tool", "content": "done"},
    ]


def test_a_conversation_survives_both_ways() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    messages = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "1", "tool_call_id": "c1"},
        {"role": "assistant", "content": "done"},
    ]
    document = convert_sample_to_trajectory(RolloutSample(messages=messages), rollout_id="r1")
    assert messages_from_trajectory(document.to_json_dict(exclude_none=True)) == messages


def test_messages_pass_through() -> None:
    messages = [{"role": "user", "content": "hi"}]
    assert messages_from_trajectory({"messages": messages, "steps": []}) == messages


@pytest.mark.parametrize(
    "document", [None, [], "text", {}, {"steps": 3}, {"steps": [1, None]}, {"steps": []}]
)
def test_anything_else_has_none(document: object) -> None:
    assert messages_from_trajectory(document) == []

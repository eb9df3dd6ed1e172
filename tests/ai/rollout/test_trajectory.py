"""ATIF models, conversion and saving."""

import json
import logging
import math
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from osmosis_ai.consts import PACKAGE_VERSION
from osmosis_ai.rollout import ExecutionResult, RolloutSample
from osmosis_ai.rollout.trajectory import (
    atif,
    convert_sample_to_trajectory,
    report_from_response,
    save_trajectory,
)
from osmosis_ai.rollout.trajectory.converter import _messages_to_steps
from osmosis_ai.rollout.trajectory.report import LlmCallMetrics, SampleReport, TrajectoryReport

CALL = {"id": "c1", "type": "function", "function": {"name": "multiply", "arguments": '{"a": 6}'}}

FIELDS = {
    "Trajectory": "schema_version session_id trajectory_id agent steps notes final_metrics continued_trajectory_ref extra "
    "subagent_trajectories",
    "Agent": "name version model_name tool_definitions extra",
    "Step": "step_id timestamp source model_name reasoning_effort message reasoning_content tool_calls observation metrics "
    "is_copied_context llm_call_count extra",
    "ToolCall": "tool_call_id function_name arguments extra",
    "Observation": "results",
    "ObservationResult": "source_call_id content subagent_trajectory_ref extra",
    "Metrics": "prompt_tokens completion_tokens cached_tokens cost_usd prompt_token_ids completion_token_ids logprobs extra",
    "FinalMetrics": "total_prompt_tokens total_completion_tokens total_cached_tokens total_cost_usd total_steps extra",
    "ContentPart": "type text source",
    "ImageSource": "media_type path",
    "SubagentTrajectoryRef": "trajectory_id session_id trajectory_path extra",
}


@pytest.mark.parametrize("name", FIELDS)
def test_field_order_and_strictness(name: str) -> None:
    model: type[BaseModel] = getattr(atif, name)
    assert list(model.model_fields) == FIELDS[name].split()
    assert model.model_config["extra"] == "forbid"


def test_report_and_document_metrics_are_the_same_fields() -> None:
    assert set(LlmCallMetrics.model_fields) - {"model_name"} == set(atif.Metrics.model_fields)


def document(**step: Any) -> dict[str, Any]:
    return {
        "agent": {"name": "a", "version": "1"},
        "steps": [{"step_id": 1, "source": "agent", "message": "m", **step}],
    }


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (document(source="user", reasoning_content="r"), "only applicable when source is 'agent'"),
        (document(llm_call_count=0, metrics={}), "must be absent when llm_call_count is 0"),
        (document(timestamp="yesterday"), "Invalid ISO 8601 timestamp"),
        (document(step_id=2), r"expected 1 .*got 2"),
        (document(observation={"results": [{"source_call_id": "x"}]}), "not found in step 1's tool_calls"),
        (document(message=[{"type": "image"}]), "required when type='image'"),
        (document(message=[{"type": "text"}]), "required when type='text'"),
        (document(observation={"results": [{"subagent_trajectory_ref": [{}]}]}), "must be resolvable"),
        (document(metrics={"cost_usd": math.nan}), "finite number"),
        (document(metrics={"logprobs": [-math.inf]}), "finite number"),
        (document(note="x"), "Extra inputs"),
        ({**document(), "steps": []}, "at least 1"),
        (
            {**document(), "subagent_trajectories": [{**document(), "trajectory_id": "x"}] * 2},
            "not unique",
        ),
        ({**document(), "subagent_trajectories": [document()]}, "must be resolvable"),
    ],
)
def test_inconsistent_documents_are_refused(body: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        atif.Trajectory.model_validate(body)


def test_format_collapses_number_arrays_only() -> None:
    values = {
        "ids": [1, -2, 3.5, 1e-07],
        "nested": [[1, 2], ["a"]],
        "text": "[\n 1,\n 2\n]",
        "é": None,
        "none": [],
    }
    text = atif.format_trajectory_json(values)
    assert json.loads(text) == values
    assert '"ids": [1, -2, 3.5, 1e-07]' in text
    assert "[1, 2]" in text
    assert '[\n      "a"\n    ]' in text
    assert "\\u00e9" in text
    with pytest.raises(ValueError, match="Out of range float values"):
        atif.format_trajectory_json({"x": math.nan})


def test_conversation_becomes_steps() -> None:
    steps = _messages_to_steps(
        [
            {"role": "developer", "content": "rules"},
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [CALL],
                "reasoning_content": {"t": 1},
                "created_at": 0,
            },
            {"role": "tool", "tool_call_id": "c1", "content": "42"},
            {"role": "tool", "tool_call_id": 7, "content": None},
            {
                "role": "user",
                "content": [{"type": "image_url"}],
                "tool_calls": [CALL],
                "reasoning_content": "r",
            },
            {"role": "tool", "tool_call_id": "c1", "content": "late"},
            {"content": "who"},
        ]
    )
    assert [step.source for step in steps] == ["system", "user", "agent", "user", "system", "user"]
    assert steps[1].message == "a\nb"
    answer = steps[2]
    assert (answer.message, answer.reasoning_content, answer.timestamp) == (
        "",
        '{"t": 1}',
        "1970-01-01T00:00:00+00:00",
    )
    assert answer.tool_calls is not None
    assert answer.tool_calls[0].arguments == {"a": 6}
    assert answer.observation is not None
    matched, unmatched = answer.observation.results
    assert (matched.source_call_id, matched.content) == ("c1", "42")
    assert (unmatched.source_call_id, unmatched.content, unmatched.extra) == (None, "", {"tool_call_id": 7})
    assert steps[3].extra == {"reasoning_content": "r", "tool_calls": [CALL]}
    assert steps[3].message == '[{"type": "image_url"}]'
    assert (steps[4].message, steps[4].extra) == ("", {"original_role": "tool"})
    assert steps[5].extra == {"original_role": ""}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"a": 1}, {"a": 1}),
        ('{"a": 1}', {"a": 1}),
        ("[1]", {"_raw": "[1]"}),
        ("not json", {"_raw": "not json"}),
        ("", {}),
        (None, {}),
    ],
)
def test_tool_arguments(arguments: Any, expected: Any) -> None:
    (step,) = _messages_to_steps(
        [{"role": "assistant", "content": "", "tool_calls": [{"function": {"arguments": arguments}}]}]
    )
    assert step.tool_calls is not None
    call = step.tool_calls[0]
    assert (call.tool_call_id, call.function_name, call.arguments) == ("call_0", "unknown", expected)


@pytest.mark.parametrize("calls", [5, True, "x", {"a": 1}, []])
def test_tool_calls_that_are_no_list_are_ignored(calls: Any) -> None:
    (step,) = _messages_to_steps([{"role": "assistant", "content": "", "tool_calls": calls}])
    assert step.tool_calls is None


class Usage(BaseModel):
    prompt_tokens: int = 9
    completion_tokens: int = 1


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        ({"usage": {"prompt_tokens": 0, "output_tokens": 2}}, {"prompt_tokens": 0, "completion_tokens": 2}),
        ({"usage": Usage()}, {"prompt_tokens": 9, "completion_tokens": 1}),
        (
            {"usage": {"input_tokens": 5, "input_tokens_details": {"cached_tokens": 3}, "cost_usd": 0.5}},
            {
                "prompt_tokens": 5,
                "cached_tokens": 3,
                "cost_usd": 0.5,
                "extra": {"input_tokens_details": {"cached_tokens": 3}},
            },
        ),
        ({"extra": {"response": {"usage": {"prompt_tokens": 4}}}}, {"prompt_tokens": 4}),
        ({"usage": {"prompt_tokens": "many"}}, None),
        ({"usage": {}}, None),
        ({}, None),
    ],
)
def test_inline_usage(extra: dict[str, Any], expected: Any) -> None:
    (step,) = _messages_to_steps([{"role": "assistant", "content": "x", **extra}])
    assert (step.metrics and step.metrics.model_dump(exclude_none=True)) == expected
    assert step.llm_call_count == (1 if expected else None)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"created_at": True, "timestamp": "2026-01-02T03:04:05Z"}, "2026-01-02T03:04:05+00:00"),
        ({"created_at": 1e30, "completed_at": 1.5}, "1970-01-01T00:00:01.500000+00:00"),
        ({"created_at": "soon", "extra": {"timestamp": 0}}, "1970-01-01T00:00:00+00:00"),
        ({"created_at": None}, None),
    ],
)
def test_timestamps(fields: dict[str, Any], expected: str | None) -> None:
    assert _messages_to_steps([{"role": "user", "content": "x", **fields}])[0].timestamp == expected


MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "content": "q"},
    {
        "role": "assistant",
        "content": "a",
        "model": "inline",
        "usage": {"prompt_tokens": 1, "completion_tokens": 2},
    },
    {"role": "assistant", "content": "b"},
]


def test_document_with_a_matching_report() -> None:
    sample = RolloutSample(messages=MESSAGES, reward=0.5, metrics={"turns": 2}, label="own")
    report = SampleReport.model_validate(
        {
            "model_name": "policy",
            "llm_call_metrics": [
                {
                    "completion_tokens": 5,
                    "completion_token_ids": [1, 2],
                    "logprobs": [-0.5, -0.25],
                    "model_name": "v2",
                },
                {"prompt_tokens": 7, "unknown": 1},
            ],
        }
    )
    trajectory = convert_sample_to_trajectory(
        sample, rollout_id="r1", request_label="request", request_metadata={"k": 1}, report=report
    )
    body = trajectory.to_json_dict(exclude_none=True)
    assert (body["session_id"], body["trajectory_id"]) == ("r1", "r1")
    assert body["agent"] == {
        "name": "osmosis-rollout-sdk",
        "version": PACKAGE_VERSION,
        "model_name": "policy",
    }
    assert body["steps"][1]["metrics"] == {
        "prompt_tokens": 1,
        "completion_tokens": 5,
        "completion_token_ids": [1, 2],
        "logprobs": [-0.5, -0.25],
    }
    assert [step.get("model_name") for step in body["steps"]] == [None, "v2", None]
    assert body["steps"][2]["llm_call_count"] == 1
    assert body["final_metrics"] == {"total_prompt_tokens": 8, "total_completion_tokens": 5, "total_steps": 3}
    assert body["extra"]["osmosis"] == {
        "rollout_id": "r1",
        "label": "own",
        "reward": 0.5,
        "sample_metrics": {"turns": 2},
        "request_metadata": {"k": 1},
    }


def test_report_that_does_not_match_is_kept_apart_and_summed() -> None:
    report = SampleReport.model_validate({"llm_call_metrics": [{"prompt_tokens": 7}]})
    trajectory = convert_sample_to_trajectory(
        RolloutSample(messages=MESSAGES), rollout_id="r1", report=report
    )
    assert trajectory.extra is not None
    assert trajectory.extra["osmosis"]["unmatched_llm_call_metrics"] == [{"prompt_tokens": 7}]
    assert trajectory.final_metrics is not None
    assert trajectory.final_metrics.total_prompt_tokens == 7
    assert trajectory.steps[2].metrics is None


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        ({"total_prompt_tokens": 100, "total_steps": 77}, {"total_prompt_tokens": 100, "total_steps": 3}),
        ({"bogus": 1}, {"total_prompt_tokens": 1, "total_completion_tokens": 2, "total_steps": 3}),
    ],
)
def test_reported_totals(reported: Any, expected: Any) -> None:
    report = SampleReport(final_metrics=reported)
    trajectory = convert_sample_to_trajectory(
        RolloutSample(messages=MESSAGES), rollout_id="r1", report=report
    )
    assert trajectory.final_metrics is not None
    assert trajectory.final_metrics.model_dump(exclude_none=True) == expected


def test_opt_out_cannot_be_converted() -> None:
    with pytest.raises(ValueError, match="no trajectory-compatible messages"):
        convert_sample_to_trajectory(RolloutSample(trajectory_messages=None), rollout_id="r1")


class Response:
    def __init__(self, body: Any) -> None:
        self.body = body

    def json(self) -> Any:
        if isinstance(self.body, Exception):
            raise self.body
        return self.body


def test_reports_from_acknowledgements(caplog: pytest.LogCaptureFixture) -> None:
    for nothing in (ValueError("no json"), [1], {"ok": True}, {"trajectory": None}):
        assert report_from_response(Response(nothing)) is None
    assert report_from_response(object()) is None
    assert not caplog.records
    assert report_from_response(Response({"trajectory": {"samples": 5}})) is None
    assert "malformed" in caplog.text
    report = report_from_response(Response({"trajectory": {"samples": {"a": {}}, "later": 1}}))
    assert report == TrajectoryReport(samples={"a": SampleReport()})


async def test_several_reported_samples_are_preserved_aside(
    artifact_root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    report = TrajectoryReport.model_validate(
        {"model_name": "m", "samples": {"a": {"model_name": "x"}, "b": {}}}
    )
    result = ExecutionResult(status="success", sample=RolloutSample(messages=MESSAGES))
    await save_trajectory(rollout_id="r1", result=result, report=report)
    assert "preserving them under" in caplog.text
    body = json.loads((artifact_root / "r1" / "trajectory.json").read_text())
    assert body["agent"]["model_name"] == "m"
    assert set(body["extra"]["osmosis"]["unmatched_sample_reports"]) == {"a", "b"}


async def test_opt_out_and_missing_sample_write_nothing(
    artifact_root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    opted_out = RolloutSample(messages=MESSAGES, trajectory_messages=None)
    await save_trajectory(rollout_id="r1", result=ExecutionResult(status="success", sample=opted_out))
    await save_trajectory(rollout_id="r2", result=ExecutionResult(status="failure"))
    assert not artifact_root.exists()
    assert [(record.levelname, record.name) for record in caplog.records] == [
        ("INFO", "osmosis_ai.rollout.trajectory.save")
    ]
    assert "Skipping trajectory for rollout r1" in caplog.text


async def test_saving_never_raises(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    result = ExecutionResult(
        status="success", sample=RolloutSample(messages=MESSAGES), extra_fields={"phase": "agent"}
    )
    await save_trajectory(rollout_id="r1", result=result, artifact_root=blocked)
    await save_trajectory(rollout_id="../up", result=result, artifact_root=tmp_path)
    empty = ExecutionResult(status="success", sample=RolloutSample())
    await save_trajectory(rollout_id="r2", result=empty, artifact_root=tmp_path)
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


async def test_given_diagnostics_win_and_stay_out_of_the_trajectory(tmp_path: Path) -> None:
    result = ExecutionResult(
        status="success", sample=RolloutSample(messages=MESSAGES), extra_fields={"own": 1}
    )
    await save_trajectory(
        rollout_id="r1", result=result, artifact_root=tmp_path, diagnostics={"b": 2, "a": 1}
    )
    assert (tmp_path / "r1" / "diagnostics.json").read_text() == '{\n  "a": 1,\n  "b": 2\n}\n'
    assert "own" not in (tmp_path / "r1" / "trajectory.json").read_text()
    assert sorted(path.name for path in (tmp_path / "r1").iterdir()) == [
        "diagnostics.json",
        "trajectory.json",
    ]

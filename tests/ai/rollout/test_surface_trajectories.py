"""From messages and reports to the saved document, row by row. Whole documents are in `test_trajectory.py`."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import ValidationError

from osmosis_ai.consts import PACKAGE_VERSION
from osmosis_ai.rollout import ExecutionResult, RolloutSample
from osmosis_ai.rollout.trajectory import atif, convert_sample_to_trajectory, report_from_response
from osmosis_ai.rollout.trajectory import save as saving
from osmosis_ai.rollout.trajectory.converter import _messages_to_steps
from osmosis_ai.rollout.trajectory.report import SampleReport, TrajectoryReport


def steps(*messages: dict[str, Any]) -> list[dict[str, Any]]:
    return [step.model_dump(exclude_none=True) for step in _messages_to_steps(messages)]


def agent(**fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": "a", **fields}


IMAGE = [{"type": "text", "text": "x"}, {"type": "image_url", "image_url": {"url": "u"}}]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"role": "system", "content": "s"}, {"source": "system", "message": "s"}),
        ({"role": "developer", "content": "s"}, {"source": "system", "message": "s"}),
        ({"role": "user", "content": None}, {"source": "user", "message": ""}),
        ({"role": "user"}, {"source": "user", "message": ""}),
        (
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {"source": "user", "message": "a\nb"},
        ),
        ({"role": "user", "content": IMAGE}, {"source": "user", "message": json.dumps(IMAGE)}),
        ({"role": "user", "content": []}, {"source": "user", "message": "[]"}),
        (
            {"role": "user", "content": [{"text": "\u00e9"}]},
            {"source": "user", "message": '[{"text": "\u00e9"}]'},
        ),
        ({"role": "user", "content": {"k": Path("p")}}, {"source": "user", "message": '{"k": "p"}'}),
        (
            {"role": "critic", "content": "c"},
            {"source": "user", "message": "c", "extra": {"original_role": "critic"}},
        ),
        ({"content": "c"}, {"source": "user", "message": "c", "extra": {"original_role": ""}}),
        (
            {"role": "user", "content": "c", "reasoning_content": "r", "tool_calls": [{"id": "1"}]},
            {
                "source": "user",
                "message": "c",
                "extra": {"reasoning_content": "r", "tool_calls": [{"id": "1"}]},
            },
        ),
        (agent(reasoning_content="r"), {"source": "agent", "message": "a", "reasoning_content": "r"}),
        (
            agent(reasoning_content={"k": 1}),
            {"source": "agent", "message": "a", "reasoning_content": '{"k": 1}'},
        ),
        (
            agent(reasoning_content=[{"type": "text", "text": "r"}]),
            {
                "source": "agent",
                "message": "a",
                "reasoning_content": '[{"type": "text", "text": "r"}]',
            },
        ),
        *(
            (agent(tool_calls=calls), {"source": "agent", "message": "a"})
            for calls in (3, True, "call", {"id": "1"})
        ),
        (
            {"role": "tool", "content": "t", "tool_call_id": "c"},
            {
                "source": "system",
                "message": "",
                "observation": {"results": [{"content": "t", "extra": {"tool_call_id": "c"}}]},
                "extra": {"original_role": "tool"},
            },
        ),
    ],
)
def test_one_message(message: dict[str, Any], expected: dict[str, Any]) -> None:
    assert steps(message) == [{"step_id": 1, **expected}]


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        ({"name": "f", "arguments": {"a": 1}}, ("f", {"a": 1})),
        ({"name": "f", "arguments": '{"a": 1}'}, ("f", {"a": 1})),
        ({"name": "f", "arguments": "[1]"}, ("f", {"_raw": "[1]"})),
        ({"name": "f", "arguments": "{broken"}, ("f", {"_raw": "{broken"})),
        *(
            ({"name": "f", "arguments": deep}, ("f", {"_raw": deep}))
            for deep in ('{"a": ' + levels * "[" + levels * "]" + "}" for levels in (200, 20_000))
        ),
        ({"name": "f", "arguments": ""}, ("f", {})),
        ({"name": "f"}, ("f", {})),
        ({"arguments": "{}"}, ("unknown", {})),
    ],
)
def test_one_tool_call(function: Any, expected: Any) -> None:
    ((call, unnamed),) = (
        step["tool_calls"] for step in steps(agent(tool_calls=[{"id": "c", "function": function}, {}]))
    )
    assert (call["tool_call_id"], call["function_name"], call["arguments"]) == ("c", *expected)
    assert unnamed == {"tool_call_id": "call_1", "function_name": "unknown", "arguments": {}}


def test_tool_results() -> None:
    call = agent(tool_calls=[{"id": "1", "function": {"name": "f"}}])
    results = [
        {"role": "tool", "tool_call_id": "1", "content": "known"},
        {"role": "function", "tool_call_id": 1, "content": "number"},
        {"role": "tool", "tool_call_id": "2", "content": "unknown"},
        {"role": "tool", "content": "none"},
    ]
    first, between, orphan = steps(call, *results, {"role": "user", "content": "u"}, results[0])
    assert first["observation"]["results"] == [
        {"source_call_id": "1", "content": "known"},
        {"content": "number", "extra": {"tool_call_id": 1}},
        {"content": "unknown", "extra": {"tool_call_id": "2"}},
        {"content": "none"},
    ]
    assert (between["source"], orphan["source"], orphan["step_id"]) == ("user", "system", 3)
    assert orphan["observation"]["results"] == [{"content": "known", "extra": {"tool_call_id": "1"}}]


USAGE = {"prompt_tokens": 5}
DETAILS = {"cached_tokens": 2}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"model": "m", "model_name": "n"}, {"model_name": "m"}),
        ({"model_name": "n"}, {"model_name": "n"}),
        ({"extra": {"response": {"model": "o"}}}, {"model_name": "o"}),
        ({"usage": USAGE}, {"metrics": USAGE, "llm_call_count": 1}),
        ({"extra": {"response": {"usage": USAGE}}}, {"metrics": USAGE, "llm_call_count": 1}),
        (
            {"usage": {"prompt_tokens": 0, "input_tokens": 9, "output_tokens": 3}},
            {"metrics": {"prompt_tokens": 0, "completion_tokens": 3}, "llm_call_count": 1},
        ),
        (
            {"usage": {"cached_tokens": 1, "input_tokens_details": DETAILS, "cost_usd": 0.5}},
            {
                "metrics": {"cached_tokens": 1, "cost_usd": 0.5, "extra": {"input_tokens_details": DETAILS}},
                "llm_call_count": 1,
            },
        ),
        (
            {"usage": {"prompt_tokens_details": DETAILS, "output_tokens_details": {}}},
            {
                "metrics": {"cached_tokens": 2, "extra": {"prompt_tokens_details": DETAILS}},
                "llm_call_count": 1,
            },
        ),
        ({"usage": {"prompt_tokens": "many", "completion_tokens": 3}}, {}),
        ({"usage": {"prompt_tokens": 1, "cost_usd": float("nan")}}, {}),
        ({"created_at": 0}, {"timestamp": "1970-01-01T00:00:00+00:00"}),
        ({"created_at": True, "timestamp": 1.5}, {"timestamp": "1970-01-01T00:00:01.500000+00:00"}),
        (
            {"created_at": "soon", "completed_at": "2026-01-02T03:04:05Z"},
            {"timestamp": "2026-01-02T03:04:05+00:00"},
        ),
        ({"extra": {"timestamp": "2026-01-02"}}, {"timestamp": "2026-01-02T00:00:00"}),
        ({"created_at": "soon"}, {}),
    ],
)
def test_what_a_message_says_of_its_call(fields: Any, expected: Any) -> None:
    assert steps(agent(**fields)) == [{"step_id": 1, "source": "agent", "message": "a", **expected}]


SAMPLE = RolloutSample(
    messages=[{"role": "user", "content": "u"}, agent(usage={"prompt_tokens": 1, "output_tokens": 2})]
)


@pytest.mark.parametrize(
    ("report", "step", "totals", "unmatched"),
    [
        (None, {"prompt_tokens": 1, "completion_tokens": 2}, {"prompt": 1, "completion": 2}, None),
        (
            {"llm_call_metrics": [{"prompt_tokens": 7, "logprobs": [-0.5], "model_name": "m"}]},
            {"prompt_tokens": 7, "completion_tokens": 2, "logprobs": [-0.5]},
            {"prompt": 7, "completion": 2},
            None,
        ),
        (
            {"llm_call_metrics": [{"prompt_tokens": 7}, {"prompt_tokens": 8, "cost_usd": 0.5}]},
            {"prompt_tokens": 1, "completion_tokens": 2},
            {"prompt": 15, "cost": 0.5},
            [{"prompt_tokens": 7}, {"prompt_tokens": 8, "cost_usd": 0.5}],
        ),
        (
            {"final_metrics": {"total_prompt_tokens": 99, "total_steps": 77}},
            {"prompt_tokens": 1, "completion_tokens": 2},
            {"prompt": 99},
            None,
        ),
        (
            {"final_metrics": {"total_prompt_tokens": "many"}},
            {"prompt_tokens": 1, "completion_tokens": 2},
            {"prompt": 1, "completion": 2},
            None,
        ),
    ],
)
def test_what_a_report_adds(report: Any, step: Any, totals: Any, unmatched: Any) -> None:
    document = convert_sample_to_trajectory(
        SAMPLE, rollout_id="r", report=None if report is None else SampleReport(**report)
    ).to_json_dict()
    assert document["steps"][1]["metrics"] == step
    assert document["steps"][1]["llm_call_count"] == 1
    names = {
        "prompt": "total_prompt_tokens",
        "completion": "total_completion_tokens",
        "cost": "total_cost_usd",
    }
    assert document["final_metrics"] == {
        "total_steps": 2,
        **{names[name]: value for name, value in totals.items()},
    }
    assert document["extra"]["osmosis"].get("unmatched_llm_call_metrics") == unmatched


def test_the_frame_of_a_document() -> None:
    removed = RolloutSample(messages=[agent()], reward=0.5, remove_sample=True, metrics={"m": 1})
    document = convert_sample_to_trajectory(
        removed,
        rollout_id="r",
        request_label="l",
        request_metadata={"k": None},
        request_extra_fields={"row_index": 1},
        report=SampleReport(model_name="of the sample"),
        default_model_name="of the report",
    ).to_json_dict()
    assert document["schema_version"] == "ATIF-v1.7"
    assert (document["session_id"], document["trajectory_id"]) == ("r", "r")
    assert document["agent"] == {
        "name": "osmosis-rollout-sdk",
        "version": PACKAGE_VERSION,
        "model_name": "of the sample",
    }
    assert document["extra"] == {
        "osmosis": {
            "rollout_id": "r",
            "label": "l",
            "reward": 0.5,
            "sample_metrics": {"m": 1},
            "request_metadata": {"k": None},
            "request_extra_fields": {"row_index": 1},
        }
    }
    assert set(document) == {
        "schema_version",
        "session_id",
        "trajectory_id",
        "agent",
        "steps",
        "final_metrics",
        "extra",
    }
    own = convert_sample_to_trajectory(
        removed.model_copy(update={"label": "own"}),
        rollout_id="r",
        request_label="l",
        default_model_name="of the report",
    )
    assert own.extra == {
        "osmosis": {"rollout_id": "r", "label": "own", "reward": 0.5, "sample_metrics": {"m": 1}}
    }
    assert own.agent.model_name == "of the report"
    with pytest.raises(ValueError, match="no trajectory-compatible messages"):
        convert_sample_to_trajectory(RolloutSample(trajectory_messages=None), rollout_id="r")
    with pytest.raises(ValidationError):
        convert_sample_to_trajectory(RolloutSample(), rollout_id="r")
    assert atif.__all__ == []
    assert own.to_json_dict(False)["notes"] is None
    assert not own.has_multimodal_content()


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", False),
        (b"ok", False),
        (b"[]", False),
        (b"{}", False),
        (b'{"trajectory": null}', False),
        (b'{"trajectory": []}', False),
        (b'{"trajectory": {"samples": {"s": {"llm_call_metrics": 3}}}}', False),
        (b'{"trajectory": {}}', True),
        (
            b'{"ok": true, "trajectory": {"new": 1, "samples": {"s": {"new": 1, "llm_call_metrics": [{"new": 1}]}}}}',
            True,
        ),
    ],
)
def test_acknowledgements(content: bytes, found: bool) -> None:
    assert (report_from_response(httpx.Response(200, content=content)) is not None) is found
    assert report_from_response(object()) is None


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ({"a": [1, 2, -3]}, '{\n  "a": [1, 2, -3]\n}'),
        ({"a": [[1.5, 2], [3]]}, '{\n  "a": [\n    [1.5, 2],\n    [3]\n  ]\n}'),
        ({"a": [1, "2"]}, '{\n  "a": [\n    1,\n    "2"\n  ]\n}'),
        ({"a": [True, 1], "b": []}, '{\n  "a": [\n    true,\n    1\n  ],\n  "b": []\n}'),
        ({"\u00e9": "[\n 1\n]", "n": {}}, '{\n  "\\u00e9": "[\\n 1\\n]",\n  "n": {}\n}'),
        ({"x": {"y": None}}, '{\n  "x": {\n    "y": null\n  }\n}'),
    ],
)
def test_the_text_of_a_document(document: Any, text: str) -> None:
    assert atif.format_trajectory_json(document) == text
    assert json.loads(text) == document


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_no_document_holds_what_is_no_number(number: float) -> None:
    for document in ({"x": number}, {"x": [number]}, {"x": [{"y": [1, number]}]}):
        with pytest.raises(ValueError, match="Out of range float values"):
            atif.format_trajectory_json(document)


async def test_when_files_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="osmosis_ai.rollout.trajectory.save")
    monkeypatch.setattr(saving, "default_artifact_root", lambda: tmp_path)
    kept = RolloutSample(messages=[agent()])
    table: list[tuple[str, Any, Any, set[str], str]] = [
        ("kept", kept, None, {"trajectory.json"}, ""),
        ("both", kept, {"n": 1}, {"trajectory.json", "diagnostics.json"}, ""),
        ("diagnostics", None, {}, {"diagnostics.json"}, ""),
        ("nothing", None, None, set(), ""),
        ("out", RolloutSample(trajectory_messages=None), None, set(), "INFO"),
        ("empty", RolloutSample(), None, set(), "WARNING"),
        ("../x", kept, None, set(), "WARNING"),
    ]
    for name, sample, extra_fields, files, level in table:
        caplog.clear()
        result = ExecutionResult(status="success", sample=sample, extra_fields=extra_fields)
        await saving.save_trajectory(rollout_id=name, result=result, report=TrajectoryReport())
        folder = tmp_path / name
        assert {path.name for path in folder.iterdir()} == files if files else not folder.exists()
        assert [record.levelname for record in caplog.records] == ([level] if level else [])
    assert not (tmp_path.parent / "x").exists()

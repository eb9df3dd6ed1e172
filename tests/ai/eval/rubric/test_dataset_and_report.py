"""Files of records, and the numbers and files of a report."""

import json
import statistics
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osmosis_ai.cli.errors import CLIError
from osmosis_ai.eval.rubric.dataset import RubricRecord, extract_assistant_content, load_rubric_dataset
from osmosis_ai.eval.rubric.report import (
    ConsoleReportRenderer,
    JsonReportWriter,
    RecordResult,
    RubricReport,
    calculate_statistics,
)
from osmosis_ai.eval.rubric.result import JudgeUsage


def say(*contents):
    return [{"role": "assistant", "content": content} for content in contents]


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        (say("a", "b"), "b"),
        (say("a", None), "a"),
        (say("a", " "), "a"),
        ([*say("a"), {"role": "user", "content": "u"}, {"role": "tool", "content": "t"}], "a"),
        (say([{"type": "text", "text": "a"}, {"type": "image_url"}, {"type": "text", "text": "b"}]), "a\nb"),
        (say([{"text": "a"}, {"type": "output_text", "text": "b"}, "c"]), "a\nb\nc"),
        (say([]), None),
        ([{"role": "user", "content": "u"}, "odd"], None),
        ([], None),
    ],
)
def test_the_last_text_of_the_assistant(messages, text):
    assert extract_assistant_content(messages) == text


def test_records(tmp_path):
    path = tmp_path / "d.jsonl"
    lines = [
        {"messages": say("a"), "id": "i", "conversation_id": "c"},
        {"solution_str": "s", "conversation_id": "c", "ground_truth": "g", "original_input": "o"},
        {"solution_str": "s", "id": 5, "ground_truth": 1, "original_input": [], "metadata": "m"},
        {"messages": say("a"), "solution_str": "s", "metadata": {"k": [1]}},
        {"messages": [{"role": "user", "content": "u"}]},
        {"messages": [], "solution_str": "sep\u2028arated"},
    ]
    text = "\ufeff" + "\n\n".join(json.dumps(line, ensure_ascii=False) for line in lines) + "\r\n  \n"
    path.write_bytes(text.encode())
    records = load_rubric_dataset(str(path))
    assert records == [
        RubricRecord("a", record_id="i"),
        RubricRecord("s", "g", "o", record_id="c"),
        RubricRecord("s"),
        RubricRecord("a", metadata={"k": [1]}),
        RubricRecord(None),
        RubricRecord("sep\u2028arated"),
    ]
    labels = [record.label(index) for index, record in enumerate(records, 1)]
    assert labels == ["i", "c", "record[3]", "record[4]", "record[5]", "record[6]"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "No JSON records found"),
        ("\n \n", "No JSON records found"),
        ('{"solution_str": "s"}\n{oops', "Invalid JSON on line 2"),
        ('{"solution_str": "s", "metadata": {"x": NaN}}', "Invalid JSON on line 1"),
        ("\n[1]", "Expected JSON object on line 2"),
        ('"text"', "Expected JSON object on line 1"),
        ('{"id": "x"}', "must include 'messages'"),
        ('{"messages": []}', "must include 'messages'"),
        ('{"messages": "hi", "solution_str": 5}', "must include 'messages'"),
    ],
)
def test_files_that_cannot_be_used(tmp_path, content, problem):
    path = tmp_path / "d.jsonl"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(CLIError, match=problem):
        load_rubric_dataset(path)


def test_paths_that_are_no_file(tmp_path):
    with pytest.raises(CLIError, match="does not exist"):
        load_rubric_dataset(tmp_path / "none.jsonl")
    with pytest.raises(CLIError, match="directory"):
        load_rubric_dataset(tmp_path)
    (tmp_path / "latin").write_bytes('{"solution_str": "é"}'.encode("latin-1"))
    with pytest.raises(CLIError, match=r"Invalid JSON on line 1.*UTF-8"):
        load_rubric_dataset(tmp_path / "latin")


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30))
def test_statistics_are_those_of_the_standard_library(scores):
    ours = calculate_statistics(scores)
    assert ours["average"] == pytest.approx(statistics.fmean(scores), abs=1e-6)
    assert ours["variance"] == pytest.approx(statistics.pvariance(scores), rel=1e-6, abs=1e-3)
    assert ours["stdev"] == pytest.approx(ours["variance"] ** 0.5)
    assert (ours["min"], ours["max"]) == (min(scores), max(scores))


def test_statistics_of_nothing_are_zero():
    assert calculate_statistics([]) == dict.fromkeys(("average", "variance", "stdev", "min", "max"), 0.0)


def report(**more):
    records = [
        RecordResult(1, "a", [0.0, 1.0], ["bad", "good"], []),
        RecordResult(2, "record[2]", [], [], ["broken"] * 5),
    ]
    return RubricReport("openai/m", "Be good.", "d.jsonl", 2, records, **more)


def test_the_report_as_json(tmp_path):
    path = JsonReportWriter().write(report(), tmp_path / "deep" / "er" / "r.json")
    found = json.loads(path.read_text(encoding="utf-8"))
    assert found.pop("generated_at").endswith("+00:00")
    numbers = {"average": 0.5, "variance": 0.25, "stdev": 0.5, "min": 0.0, "max": 1.0}
    assert found == {
        "model": "openai/m",
        "rubric": "Be good.",
        "data_path": "d.jsonl",
        "number": 2,
        "overall_statistics": numbers,
        "records": [
            {
                "index": 1,
                "label": "a",
                "scores": [0.0, 1.0],
                "explanations": ["bad", "good"],
                "errors": [],
                "statistics": numbers,
            },
            {
                "index": 2,
                "label": "record[2]",
                "scores": [],
                "explanations": [],
                "errors": ["broken"] * 5,
                "statistics": dict.fromkeys(numbers, 0.0),
            },
        ],
    }


def test_usage_is_in_the_report_when_it_is_known():
    assert report().usage is None
    told = report(usages=[JudgeUsage(10, 2, 0.5), JudgeUsage(1, None, None)])
    assert told.to_dict()["usage"] == {"prompt_tokens": 11, "completion_tokens": 2, "cost_usd": 0.5}


def test_the_report_for_people():
    lines = []
    ConsoleReportRenderer(printer=lines.append).render(report(usages=[JudgeUsage(1200, 2, 0.5)]))
    assert lines == [
        "a: 0.000, 1.000 (average 0.500, stdev 0.500, min 0.000, max 1.000)",
        "  bad",
        "record[2]: no score",
        "  Error: broken",
        "  Error: broken",
        "  Error: broken",
        "  and 2 more errors",
        "Overall: average 0.500, stdev 0.500, min 0.000, max 1.000",
        "Usage: 1,200 prompt tokens, 2 completion tokens, $0.5000",
    ]


def test_a_report_without_any_score_names_no_number():
    lines = []
    failed = RecordResult(1, "a", errors=["broken"])
    ConsoleReportRenderer(printer=lines.append).render(RubricReport("m", "r", "d", 1, [failed]))
    assert lines == ["a: no score", "  Error: broken", "Overall: no score"]


def test_a_folder_gets_a_file_of_the_usual_name(tmp_path):
    assert JsonReportWriter.target(tmp_path) == tmp_path / "rubric_eval_result.json"
    assert JsonReportWriter.target(f"{tmp_path}/new/") == tmp_path / "new" / "rubric_eval_result.json"
    assert JsonReportWriter.target(tmp_path / "r.json") == tmp_path / "r.json"


def test_a_place_that_cannot_be_written_is_told_before_the_work(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(CLIError, match="cannot be written"):
        JsonReportWriter().check(tmp_path / "file" / "r.json")
    with pytest.raises(CLIError, match="cannot be written"):
        JsonReportWriter().write(report(), tmp_path / "file" / "r.json")


def test_a_failed_write_leaves_what_was_there(tmp_path, monkeypatch):
    target = tmp_path / "r.json"
    target.write_text("old", encoding="utf-8")

    def fail(self, other):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(CLIError, match="No space left"):
        JsonReportWriter().write(report(), target)
    assert target.read_text(encoding="utf-8") == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["r.json"]

"""``osmosis eval rubric`` with a replaced judge: what is called how often, what comes out, what is refused."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from osmosis_ai.cli.errors import CLIError
from osmosis_ai.cli.main import main
from osmosis_ai.eval.rubric import JudgeUsage, ProviderRequestError, RubricResult, cli
from osmosis_ai.eval.rubric.cli import RubricCommand


class Judge:
    """Replaces ``evaluate_rubric``: scores by the text itself, fails for `boom`."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.running = self.most = 0
        self.gate: asyncio.Event | None = None
        self.wait_for = 0

    async def __call__(self, **arguments: Any) -> RubricResult:
        self.calls.append(arguments)
        self.running += 1
        self.most = max(self.most, self.running)
        if self.wait_for:
            self.gate = self.gate or asyncio.Event()
            if self.running == self.wait_for:
                self.gate.set()
            await asyncio.wait_for(self.gate.wait(), 30)
        await asyncio.sleep(0)
        self.running -= 1
        text = arguments["solution_str"]
        if text == "boom":
            raise ProviderRequestError("openai", "openai/m", "no luck")
        return RubricResult(float(text), f"it says {text}", JudgeUsage(10, 5, 0.01))


@pytest.fixture
def judge(monkeypatch):
    replaced = Judge()
    monkeypatch.setattr(cli, "evaluate_rubric", replaced)
    return replaced


def texts(*values):
    return [{"solution_str": str(value)} for value in values]


def test_every_record_is_judged_as_often_as_asked(judge, write_records):
    path = write_records({"id": "a", "solution_str": "0", "metadata": {"k": 1}}, {"solution_str": "1"})
    result = RubricCommand().run(
        data=str(path),
        rubric=" Good? ",
        model="openai/m",
        number=3,
        api_key="k",
        timeout=5.0,
        score_min=0,
        score_max=2,
    )
    assert [call["solution_str"] for call in judge.calls] == ["0"] * 3 + ["1"] * 3
    assert judge.calls[0] == {
        "solution_str": "0",
        "rubric": "Good?",
        "model": "openai/m",
        "ground_truth": None,
        "original_input": None,
        "metadata": {"k": 1},
        "score_min": 0,
        "score_max": 2,
        "api_key": "k",
        "timeout": 5.0,
    }
    resource = result.resource
    assert (result.operation, result.status, result.exit_code) == ("eval.rubric", "success", 0)
    assert [record["label"] for record in resource["records"]] == ["a", "record[2]"]
    assert [record["scores"] for record in resource["records"]] == [[0.0] * 3, [1.0] * 3]
    assert resource["statistics"]["average"] == 0.5
    assert (resource["record_count"], resource["error_count"], resource["number"]) == (2, 0, 3)
    assert resource["usage"] == {
        "prompt_tokens": 60,
        "completion_tokens": 30,
        "cost_usd": pytest.approx(0.06),
    }


def test_eight_judgements_run_at_once(judge, write_records):
    judge.wait_for = 8
    RubricCommand().run(data=str(write_records(*texts(*[1] * 6))), rubric="r", model="openai/m", number=4)
    assert (judge.most, len(judge.calls)) == (8, 24)


def test_what_fails_is_reported_and_the_rest_counts(judge, write_records, capsys):
    path = write_records(*texts("boom", "1"), {"messages": [{"role": "user", "content": "u"}]})
    assert main(["--json", "eval", "rubric", "-d", str(path), "-r", "r", "--model", "openai/m"]) == 1
    out, err = capsys.readouterr()
    answer = json.loads(out)
    assert (answer["operation"], answer["status"], err) == ("eval.rubric", "failed", "")
    first, second, third = answer["resource"]["records"]
    assert first["errors"] == ["judge 'openai/m': no luck"]
    assert (second["scores"], second["explanations"]) == ([1.0], ["it says 1"])
    assert "no text of the assistant" in third["errors"][0]
    assert answer["resource"]["error_count"] == 2


@pytest.mark.parametrize("flag", ["--plain", None])
def test_people_get_scores_and_statistics(judge, write_records, capsys, flag):
    path = write_records(*texts("0.5"))
    arguments = ["eval", "rubric", "-d", str(path), "-r", "r", "--model", "openai/m"]
    assert main(arguments + ([flag] if flag else [])) == 0
    out, err = capsys.readouterr()
    assert "record[1]: 0.500" in out
    assert "it says 0.5" in out
    assert "Overall: average 0.500" in out
    assert err == ""


def test_the_report_goes_to_a_file(judge, write_records, tmp_path, capsys):
    path = write_records(*texts("1"))
    arguments = ["--json", "eval", "rubric", "-d", str(path), "-r", "r", "--model", "openai/m"]
    assert main([*arguments, "-o", f"{tmp_path}/out/"]) == 0
    resource = json.loads(capsys.readouterr().out)["resource"]
    assert resource["output_path"] == str(tmp_path / "out" / "rubric_eval_result.json")
    assert "records" not in resource
    report = json.loads((tmp_path / "out" / "rubric_eval_result.json").read_text(encoding="utf-8"))
    assert report["records"][0]["scores"] == [1.0]
    assert report["data_path"] == str(path)


def test_the_rubric_may_be_a_file(judge, write_records, tmp_path):
    (tmp_path / "rubric.txt").write_text("From a file.\n", encoding="utf-8")
    RubricCommand().run(data=str(write_records(*texts(1))), rubric="@rubric.txt", model="openai/m")
    assert judge.calls[0]["rubric"] == "From a file."


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"number": 0}, "--number must be 1 or more"),
        ({"timeout": 0.0}, "--timeout"),
        ({"timeout": float("nan")}, "--timeout"),
        ({"model": " "}, "--model must not be empty"),
        ({"rubric": "  "}, "rubric is empty"),
        ({"rubric": "@missing.txt"}, "does not exist"),
        ({"rubric": "@empty.txt"}, "is empty"),
        ({"rubric": "@."}, "is a directory"),
        ({"data": "missing.jsonl"}, "does not exist"),
        ({"data": "."}, "directory"),
        ({"output_path": "empty.txt/report.json"}, "cannot be written"),
    ],
)
def test_what_is_refused_before_any_call(judge, write_records, tmp_path, arguments, problem):
    (tmp_path / "empty.txt").touch()
    path = write_records(*texts(1))
    with pytest.raises(CLIError, match=problem) as caught:
        RubricCommand().run(**{"data": str(path), "rubric": "r", "model": "openai/m", **arguments})
    assert caught.value.code == "VALIDATION"
    assert judge.calls == []


def test_options_that_must_be_there(capsys):
    assert main(["eval", "rubric", "-d", "x"]) == 2
    assert capsys.readouterr().err == "Error: Missing parameter: rubric\n"


def test_an_empty_score_range_is_an_error_of_each_record(write_records, monkeypatch, capsys):
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    path = write_records(*texts(1, 2))
    arguments = ["eval", "rubric", "-d", str(path), "-r", "r", "--model", "openai/m", "--json"]
    assert main([*arguments, "--score-min", "1"]) == 1
    resource = json.loads(capsys.readouterr().out)["resource"]
    assert ["score_max" in record["errors"][0] for record in resource["records"]] == [True, True]
    assert set(resource["statistics"].values()) == {0.0}  # no score: `records` and `error_count` tell
    assert main([*arguments[:-1], "--score-min", "1"]) == 1
    out = capsys.readouterr().out
    assert (out.count("score_max"), out.count("record[")) == (1, 0)


WAITING = """
import pathlib, time
def supports_response_schema(model):
    return False
def completion(**request):
    pathlib.Path("asked").touch()
    time.sleep(600)
"""


def test_ctrl_c_does_not_wait_for_the_judge(write_records, tmp_path):
    """A stand-in for LiteLLM never answers."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "litellm.py").write_text(WAITING)
    command = [sys.executable, "-m", "osmosis_ai.cli.main", "--json", "eval", "rubric"]
    process = subprocess.Popen(
        [*command, "-d", str(write_records(*texts(1))), "-r", "r", "--model", "openai/m"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "lib"), "OPENAI_API_KEY": "k"},
    )
    give_up_at = time.monotonic() + 120
    while not (tmp_path / "asked").exists():
        assert process.poll() is None
        assert time.monotonic() < give_up_at
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (130, "")
    assert json.loads(err)["error"]["code"] == "INTERRUPTED"

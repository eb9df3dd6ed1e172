"""The whole way through LiteLLM to a judge on loopback, and the examples of the page on rubrics."""

import json
import os
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

PAGE = (Path(__file__).parents[4] / "docs" / "rubric.md").read_text(encoding="utf-8")
KEY = "sk-sentinel-key-1234"


@pytest.fixture(scope="module")
def litellm_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Any], Any]]:
    """Do a job in the process that has LiteLLM. What it wrote to its own stderr must be nothing."""
    log = tmp_path_factory.mktemp("litellm") / "stderr"
    environment = {
        name: value for name, value in os.environ.items() if not re.search(r"_API_KEY|(?i:proxy)$", name)
    }
    with log.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("litellm_process.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environment | {"LITELLM_LOCAL_MODEL_COST_MAP": "", "NO_COLOR": "1"},
        )
        assert process.stdin is not None
        assert process.stdout is not None

        def do(job: Any) -> Any:
            process.stdin.write(json.dumps(job) + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
            assert answer, log.read_text()
            return json.loads(answer)

        yield do
        process.stdin.close()
        process.wait(timeout=120)
        process.stdout.close()
    assert log.read_text() == ""  # no look-up of a foreign host, no log lines of libraries


@pytest.fixture
def run(litellm_process: Callable[[Any], Any], judge: Any, tmp_path: Path) -> Callable[..., Any]:
    def run(kind: str, what: Any, **environment: str) -> Any:
        env = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": judge.url, **environment}
        return litellm_process({"kind": kind, "what": what, "env": env, "folder": str(tmp_path)})

    return run


@pytest.fixture
def ask(run: Callable[..., Any]) -> Callable[..., Any]:
    def ask(environment: dict[str, str] | None = None, **more: Any) -> Any:
        arguments = {"solution_str": "Paris.", "rubric": "Correct?", "model": "openai/gpt-4o-mini", **more}
        return run("ask", arguments, **(environment or {}))

    return ask


def examples(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_a_judgement_with_its_tokens_and_price(judge: Any, ask: Any) -> None:
    judge.decide = lambda _: judge.text('<think>hm</think>```json\n{"score": 8, "explanation": "good"}\n```')
    answer = ask(score_max=10)
    assert (answer["score"], answer["explanation"]) == (8.0, "good")
    prompt_tokens, completion_tokens, cost = answer["usage"]
    assert (prompt_tokens, completion_tokens) == (1000, 100)
    assert cost > 0  # by the table in the package
    (request,) = judge.requests
    assert (request["model"], request["temperature"]) == ("gpt-4o-mini", 0)
    assert request["response_format"]["json_schema"]["name"] == "rubric_response"
    assert judge.keys == [f"Bearer {KEY}"]


def test_an_unknown_model_is_asked_for_any_json_and_has_no_price(judge: Any, ask: Any) -> None:
    answer = ask(model="openai/my-own-judge", api_key="another-key")
    assert judge.requests[0]["response_format"] == {"type": "json_object"}
    assert judge.keys == ["Bearer another-key"]
    assert answer["usage"][:2] == [1000, 100]
    assert not answer["usage"][2]


def test_a_model_that_takes_no_temperature_is_asked_without(judge: Any, ask: Any) -> None:
    assert ask(model="openai/gpt-5-mini")["score"] == 0.5
    assert "temperature" not in judge.requests[0]


@pytest.mark.parametrize(
    ("status", "expected"),
    [(404, "ModelNotFoundError"), (401, "ProviderRequestError"), (400, "ProviderRequestError")],
)
def test_refusals(judge: Any, ask: Any, status: int, expected: str) -> None:
    judge.decide = lambda _: judge.error(status, f"refused {KEY}")
    answer = ask()
    assert (answer["error"], answer["provider"]) == (expected, "openai")
    assert "refused" in answer["text"]
    assert KEY not in answer["text"]


def test_a_provider_without_the_key_that_it_wants(judge: Any, ask: Any) -> None:
    answer = ask({"OPENAI_API_KEY": ""})
    assert answer["error"] == "MissingAPIKeyError"
    assert "OPENAI_API_KEY" in answer["text"]
    assert judge.requests == []


def test_a_judge_that_is_not_there(ask: Any, unused_port: int) -> None:
    answer = ask({"OPENAI_BASE_URL": f"http://127.0.0.1:{unused_port}/v1"})
    assert answer["error"] == "ProviderRequestError"
    assert "onnection" in answer["text"]


def test_an_unknown_provider(judge: Any, ask: Any) -> None:
    answer = ask(model="nope/nope")
    assert answer["error"] == "ProviderRequestError"
    assert "nope/nope" in answer["text"]
    assert judge.requests == []


COMMAND = ["--json", "eval", "rubric", "-r", "r", "--model", "openai/gpt-4o-mini"]


def test_the_command_asks_eight_at_a_time(judge: Any, run: Any, write_records: Any) -> None:
    together = threading.Barrier(8)  # breaks, and fails the test, unless eight requests are there at once

    def decide(_: Any) -> tuple[int, Any]:
        together.wait(timeout=60)
        return judge.score(1.0)

    judge.decide = decide
    path = write_records(*[{"solution_str": "x"}] * 8)
    answer = run("command", [*COMMAND, "-d", str(path), "-n", "2"])
    assert (answer["status"], answer["err"]) == (0, "")
    resource = json.loads(answer["out"])["resource"]
    assert resource["statistics"]["average"] == 1.0
    assert resource["usage"]["prompt_tokens"] == 16_000


def test_one_failure_is_one_line_of_json_without_the_key(judge: Any, run: Any, write_records: Any) -> None:
    judge.decide = lambda request: (
        judge.error(400, f"bad {KEY}") if "BAD" in str(request) else judge.score(1.0)
    )
    path = write_records({"solution_str": "x"}, {"solution_str": "BAD"})
    answer = run("command", [*COMMAND, "-d", str(path)])
    assert (answer["status"], answer["err"]) == (1, "")
    (line,) = answer["out"].splitlines()
    resource = json.loads(line)["resource"]
    assert (resource["error_count"], resource["records"][0]["scores"]) == (1, [1.0])
    assert KEY not in line


def test_the_command_of_the_page(run: Any, tmp_path: Path) -> None:
    (records,) = examples("json")
    (tmp_path / "conversations.jsonl").write_text(records, encoding="utf-8")
    (command,) = [block for block in examples("bash") if block.startswith("osmosis eval rubric")]
    program, *arguments = shlex.split(command.replace("\\\n", " "))
    assert program == "osmosis"
    assert run("command", arguments)["status"] == 0
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert [record["label"] for record in report["records"]] == ["capital", "sum"]
    assert [len(record["scores"]) for record in report["records"]] == [3, 3]
    table = PAGE.split("The report:")[1].split("\n\n")[1]
    assert set(report) <= set(re.findall(r"`(\w+)`", table))


def test_the_python_of_the_page(judge: Any, run: Any) -> None:
    alone, grader = examples("python")
    assert run("code", alone)["out"] == "0.50: fine\n"
    judge.decide = lambda _: judge.error(400, "no")
    assert "openai did not score it" in run("code", alone)["out"]
    judge.decide = lambda _: judge.score(0.75)
    grade = """
import asyncio
from osmosis_ai.rollout import RolloutSample
sample = RolloutSample(messages=[{"role": "assistant", "content": "Please: Paris."}])
asyncio.run(Judged().grade(GraderContext(label="Paris", sample=sample)))
value = sample.reward
"""
    assert run("code", grader + grade)["value"] == 0.75

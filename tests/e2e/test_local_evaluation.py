"""`osmosis eval run`: an evaluation on this machine, with the real command, environment and rollout server."""

import contextlib
import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

OSMOSIS = Path(sys.executable).with_name("osmosis")
KEY = "sk-canary-5d1f0a7c"

MAIN = """
import os

import httpx
import uvicorn

from osmosis_ai.rollout import (
    AgentWorkflow, AgentWorkflowConfig, AgentWorkflowOutput, ConcurrencyConfig, Grader, LocalBackend, get_rollout_context,
)
from osmosis_ai.rollout.server import create_rollout_server


class Ask(AgentWorkflow):
    async def run(self, ctx):
        todo = (ctx.metadata or {}).get("do")
        if todo == "exit" and not os.path.exists("../../was-here"):
            open("../../was-here", "w").close()
            os._exit(3)
        if todo == "raise" and not os.path.exists("../../mended"):
            raise KeyError("no such tool")
        print("the key is", os.environ.get("OPENAI_API_KEY"), "in", os.environ.get("PLACE"))
        rollout = get_rollout_context()
        async with httpx.AsyncClient(timeout=60) as http:
            answer = await http.post(
                rollout.chat_completions_url + "/chat/completions",
                json={"model": "m", "messages": ctx.prompt},
                headers={"Authorization": f"Bearer {rollout.api_key}"},
            )
        answer.raise_for_status()
        (ctx.artifacts_dir / "notes.txt").write_text("seen")
        return AgentWorkflowOutput(messages=[*ctx.prompt, answer.json()["choices"][0]["message"]])


class Same(Grader):
    async def grade(self, ctx):
        ctx.set_reward(float(ctx.sample.messages[-1]["content"] == ctx.label))


config = AgentWorkflowConfig(name="ask", concurrency=ConcurrencyConfig(max_concurrent=2))
backend = LocalBackend(workflow=Ask, workflow_config=config, grader=Same)

if __name__ == "__main__":
    app = create_rollout_server(backend=backend)
    uvicorn.run(app, host="127.0.0.1", port=int(os.environ["_OSMOSIS_ROLLOUT_PORT"]), log_level="warning")
"""

CONFIG = """
[experiment]
rollout = "ask"
entrypoint = "main.py"
model_path = "openai/some-model"
dataset = "questions"

[evaluation]
n = 2

[env]
PLACE = "here"

[secrets]
required = ["OPENAI_API_KEY"]
"""


class Model:
    """An OpenAI-compatible server that says "42". With `held` it keeps rollouts waiting."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.keys: set[str] = set()
        self.held = threading.Event()
        self.go_on = threading.Event()
        model = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                question = body["messages"][-1]["content"]
                model.keys.add(self.headers["Authorization"])
                if question != "hi":
                    model.asked.append(question)
                    if model.held.is_set():
                        model.go_on.wait(60)
                message = {"role": "assistant", "content": "42"}
                usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
                choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
                answer = {"id": "1", "object": "chat.completion", "created": 1, "model": "m"}
                content = json.dumps({**answer, "choices": choices, "usage": usage}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # who asked was killed
                    self.wfile.write(content)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@dataclass
class Site:
    """A workspace directory and the command in it."""

    root: Path
    home: Path
    model: Model
    env: dict[str, str] = field(default_factory=dict)

    def command(self, *arguments: str) -> list[str]:
        return [str(OSMOSIS), "eval", "run", "configs/eval/ask.toml", *arguments]

    def start(self, *arguments: str, **env: str) -> "subprocess.Popen[str]":
        full = {
            **{name: value for name, value in os.environ.items() if not name.startswith("OSMOSIS_")},
            "HOME": str(self.home),
            "OPENAI_API_KEY": KEY,
            "NO_COLOR": "1",
            **env,
            # The cache of packages is the machine's: nothing is downloaded twice.
            "UV_CACHE_DIR": os.environ.get("UV_CACHE_DIR", str(Path.home() / ".cache" / "uv")),
        }
        return subprocess.Popen(
            self.command(*arguments, "--yes", "--json"),
            cwd=self.root,
            env=full,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, **env: str) -> tuple[int, dict[str, Any]]:
        """The exit status and the one JSON document."""
        process = self.start(*arguments, **env)
        out, err = process.communicate(timeout=240)
        text = out.strip() or err.strip().splitlines()[-1]
        assert KEY not in out + err
        return process.returncode, json.loads(text)

    def evaluate(self, name: str, *arguments: str, rows: str = "data/questions.jsonl") -> Any:
        return self.run("--name", name, "--model-url", self.model.url, "--dataset-file", rows, *arguments)

    def folder(self, name: str) -> Path:
        return self.root / ".osmosis" / "evals" / name


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One home folder: the environment of the rollout is built once."""
    return tmp_path_factory.mktemp("home")


def questions(count: int, todo: dict[int, str] | None = None) -> str:
    rows = [
        {
            "system_prompt": "",
            "user_prompt": f"question {index}",
            "ground_truth": "43" if index == 1 else "42",
            "metadata": {"do": (todo or {}).get(index, "ask")},
        }
        for index in range(count)
    ]
    return "".join(f"{json.dumps(row)}\n" for row in rows)


@pytest.fixture
def site(tmp_path: Path, home: Path) -> Iterator[Site]:
    for name in ("rollouts/ask", "configs/eval", "configs/training", "data"):
        (tmp_path / name).mkdir(parents=True)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    code = tmp_path / "rollouts" / "ask"
    (code / "main.py").write_text(MAIN)
    project = '[project]\nname = "ask"\nversion = "0"\ndependencies = ["osmosis-ai[server]"]\n'
    (code / "pyproject.toml").write_text(project)
    (tmp_path / "configs/eval/ask.toml").write_text(CONFIG)
    (tmp_path / "data/questions.jsonl").write_text(questions(5))
    model = Model()
    yield Site(tmp_path, home, model)
    model.go_on.set()
    model.server.shutdown()
    model.server.server_close()


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def until(condition: Callable[[], Any], what: str, seconds: float = 120) -> None:
    give_up_at = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up_at, f"{what} did not happen"
        time.sleep(0.05)


def test_an_evaluation_leaves_the_files_of_a_downloaded_run(site: Site) -> None:
    status, found = site.evaluate("first")
    assert status == 0, found
    assert (found["status"], found["operation"]) == ("success", "eval.run")
    resource, folder = found["resource"], site.folder("first")
    assert resource["output_path"] == str(folder)
    assert resource["dataset_source"] == "explicit"
    counts = {
        key: resource[key] for key in ("total_work_items", "succeeded", "failed", "resumed", "cancelled")
    }
    assert counts == {"total_work_items": 10, "succeeded": 10, "failed": 0, "resumed": 0, "cancelled": 0}
    assert resource["metrics"]["score"] == pytest.approx(0.8)
    index = lines(folder / "index.jsonl")
    assert [(line["row_index"], line["run_index"]) for line in index] == [
        (row, run) for row in range(5) for run in range(2)
    ]
    assert [line["reward"] for line in index] == [1.0, 1.0, 0.0, 0.0, *[1.0] * 6]
    assert (folder / "summary.jsonl").read_bytes() == (folder / "index.jsonl").read_bytes()
    trajectory = json.loads((folder / index[0]["trajectory_filename"]).read_text())
    assert trajectory["session_id"] == index[0]["rollout_id"]
    assert (folder / "artifacts/row_0_run_0/notes.txt").read_text() == "seen"
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["eval_run"]["name"] == "first"
    assert metrics["summary"]["passed"] == 8
    assert not (folder / "server.json").exists()
    log = folder / "logs.txt"
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    assert "the key is [REDACTED] in here" in log.read_text()
    for path in folder.rglob("*"):
        assert path.is_dir() or KEY.encode() not in path.read_bytes(), path
    assert site.model.keys == {f"Bearer {KEY}"}


def test_a_killed_evaluation_goes_on_where_it_was(site: Site) -> None:
    process = site.start(
        *("--name", "killed", "--model-url", site.model.url, "--dataset-file", "data/questions.jsonl"),
    )
    events = site.folder("killed") / "events.jsonl"
    until(lambda: events.exists() and events.read_text().count("row_index") >= 2, "the second attempt")
    site.model.held.set()
    asked = len(site.model.asked)
    until(lambda: len(site.model.asked) > asked, "an attempt that waits")
    server = json.loads((site.folder("killed") / "server.json").read_text())["pid"]
    process.kill()
    process.communicate()
    until(lambda: not Path(f"/proc/{server}").exists(), "the end of the rollout server")
    kept = {(a["row_index"], a["run_index"]): a["rollout_id"] for a in lines_of(events)}
    site.model.held.clear()
    site.model.go_on.set()
    status, found = site.evaluate("killed")
    assert status == 0, found
    assert found["resource"]["resumed"] == len(kept) >= 2
    index = {(a["row_index"], a["run_index"]): a for a in lines(site.folder("killed") / "index.jsonl")}
    assert len(index) == 10
    for key, rollout_id in kept.items():
        assert index[key]["rollout_id"] == rollout_id
        assert index[key]["resumed"] is True
    folder = site.folder("killed")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    again, found = site.evaluate("killed")  # nothing is left to do, and nothing is changed
    assert (again, found["status"], found["resource"]["dispatched"]) == (0, "success", 0)
    after = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert {path for path in before | after if before.get(path) != after.get(path)} <= {
        folder / ".state" / "rows.parquet"
    }


def lines_of(events: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in events.read_text().splitlines() if line]


def test_an_interrupted_evaluation_ends_cleanly_and_nobody_else_may_run_it(site: Site) -> None:
    site.model.held.set()
    process = site.start(
        *("--name", "stopped", "--model-url", site.model.url, "--dataset-file", "data/questions.jsonl"),
    )
    until(lambda: site.model.asked, "the first attempt")
    status, refused = site.evaluate("stopped")
    assert (status, refused["error"]["code"]) == (1, "CONFLICT")
    assert "is running already" in refused["error"]["message"]
    process.send_signal(signal.SIGINT)
    log = site.folder("stopped") / "logs.txt"
    until(lambda: "ending:" in log.read_text(), "the graceful end")
    site.model.go_on.set()
    out, err = process.communicate(timeout=120)
    found = json.loads(out)
    assert (process.returncode, found["status"]) == (1, "partial"), err
    resource = found["resource"]
    assert resource["cancelled"] >= 1
    assert resource["succeeded"] + resource["cancelled"] == 10
    assert json.loads((site.folder("stopped") / "progress.json").read_text())["status"] == "stopped"


def test_changed_inputs_are_refused_and_a_fresh_start_keeps_the_old_one(site: Site) -> None:
    assert site.evaluate("inputs", "--rows", "0,2-3")[0] == 0
    (site.root / "rollouts/ask/helper.py").write_text("X = 1\n")
    status, found = site.evaluate("inputs", "--rows", "0-1")
    assert (status, found["error"]["code"]) == (1, "CONFLICT")
    assert "Changed: the rollout's code, the rows." in found["error"]["message"]
    status, found = site.evaluate("inputs", "--rows", "0-1", "--fresh")
    assert (status, found["resource"]["total_work_items"]) == (0, 4)
    assert len(list(site.folder("inputs").parent.glob("inputs.archive-*/index.jsonl"))) == 1


def test_failures_are_told_and_run_again_when_asked(site: Site) -> None:
    (site.root / "data/hard.jsonl").write_text(questions(5, {2: "raise", 4: "exit"}))
    status, found = site.evaluate("failing", rows="data/hard.jsonl")
    assert status == 0, found  # a failed attempt is a result
    assert (found["resource"]["failed"], found["resource"]["failed_rows"]) == (2, [2])
    failed = [line for line in lines(site.folder("failing") / "index.jsonl") if line["status"] == "failed"]
    assert all("no such tool" in line["error_message"] for line in failed)
    assert "it is started again" in (site.folder("failing") / "logs.txt").read_text()
    (site.root / "mended").touch()
    status, found = site.evaluate("failing", "--retry-failed", rows="data/hard.jsonl")
    assert status == 0, found
    resource = found["resource"]
    assert (resource["failed"], resource["resumed"], resource["dispatched"]) == (0, 8, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--rows", "3-99"), "row 99 is not in the dataset: its rows are 0 to 4"),
        (("--rows", "x"), "'x' is neither a row number nor a range"),
        (("--name", "../out"), "cannot be used"),
        (("--dataset-file", "data/none.jsonl"), "Dataset file not found"),
        (("--secrets-file", "nowhere.env"), "cannot read nowhere.env"),
        (("--model-url", "127.0.0.1:8000/v1"), "--model-url: '127.0.0.1:8000/v1' is no address"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_made(
    site: Site, arguments: tuple[str, ...], message: str
) -> None:
    given = ("--dataset-file", "data/questions.jsonl", "--model-url", site.model.url, *arguments)
    status, found = site.run(*given)
    assert status == 1
    assert message in found["error"]["message"]
    assert not list((site.root / ".osmosis").glob("evals/[a-z]*"))


def test_a_secret_without_a_value_names_the_option(site: Site) -> None:
    status, found = site.run("--dataset-file", "data/questions.jsonl", OPENAI_API_KEY="")
    assert (status, found["error"]["code"]) == (1, "INTERACTIVE_REQUIRED")
    assert found["error"]["details"] == {"missing": ["OPENAI_API_KEY"], "flags": ["--secrets-file"]}


def test_a_provider_without_its_key_is_refused_before_anything_is_made(site: Site) -> None:
    config = site.root / "configs" / "eval" / "ask.toml"
    config.write_text(CONFIG.replace('["OPENAI_API_KEY"]', "[]"))
    status, found = site.run("--dataset-file", "data/questions.jsonl", OPENAI_API_KEY="")
    assert (status, found["error"]["code"]) == (1, "VALIDATION")
    assert found["error"]["details"]["missing"] == ["OPENAI_API_KEY"]
    assert not list((site.root / ".osmosis").glob("evals/[a-z]*"))


def test_a_rollout_that_does_not_import_says_why(site: Site) -> None:
    (site.root / "rollouts/ask/main.py").write_text("import no_such_module\n")
    status, found = site.evaluate("broken")
    assert status == 1
    assert "no_such_module" in found["error"]["message"]

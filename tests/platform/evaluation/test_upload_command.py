"""`osmosis eval upload` against a running platform: a local evaluation becomes a run, once, with everything that belongs to it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import uvicorn

from osmosis_ai.eval.attempt import AttemptRecord
from osmosis_ai.eval.local.folder import RunFolder
from osmosis_ai.eval.local.outputs import write_outputs
from osmosis_ai.eval.local.sink import FolderSink
from osmosis_ai.worker.artifacts import Artifact
from osmosis_platform.app import create_app
from osmosis_platform.context import Platform

PATIENCE_S = 60
INPUTS = {
    "rollout": "echo",
    "entrypoint": "main.py",
    "source_digest": "x",
    "model_path": "openai/gpt-5-mini",
    "model_url": None,
    "dataset": "sums",
    "dataset_sha256": "y",
    "dataset_rows": 40,
    "selected_source_rows": "0-1",
    "selected_rows": 2,
    "n": 1,
    "pass_threshold": 0.5,
}


@pytest.fixture
def address(platform: Platform) -> Iterator[str]:
    server = uvicorn.Server(uvicorn.Config(create_app(platform), port=0, log_level="warning", lifespan="off"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + PATIENCE_S
    while not server.started:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    platform.urls.base_url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    yield platform.urls.base_url
    server.should_exit = True
    thread.join(PATIENCE_S)


@pytest.fixture
def space(tmp_path: Path) -> Path:
    folder = tmp_path / "space"
    for name in ("rollouts", "configs/eval", "configs/training", "data"):
        (folder / name).mkdir(parents=True)
    git = ["git", "-C", str(folder)]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "remote", "add", "origin", "https://github.com/acme/agents.git"], check=True)
    return folder


@pytest.fixture
def osmosis(address: str, town: Any, space: Path, tmp_path: Path) -> Callable[..., Any]:
    """Run the command as max; the answer, or the error."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OSMOSIS_")}
    environment |= {
        "HOME": str(tmp_path),
        "OSMOSIS_PLATFORM_URL": address,
        "OSMOSIS_TOKEN": town.max.token,
        "GIT_CONFIG_GLOBAL": "/dev/null",
    }

    def run(*arguments: str) -> dict[str, Any]:
        ran = subprocess.run(
            [sys.executable, "-m", "osmosis_ai.cli.main", *arguments, "--json"],
            cwd=space,
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        answer: dict[str, Any] = json.loads(
            ran.stdout if ran.returncode == 0 else ran.stderr.splitlines()[-1]
        )
        return answer

    return run


def evaluate(root: Path, attempts: int = 2, reward: float = 1.0, status: str = "finished") -> RunFolder:
    """What `osmosis eval run` leaves behind, made by the same code."""
    folder = RunFolder(root, "local-heron")
    if not folder.manifest_path.exists():
        folder.begin(INPUTS, {"git_head": "a" * 40, "config_path": "configs/eval/e.toml"})
    sink = FolderSink(folder)
    sink.line("eval", "started")

    async def fill() -> None:
        for row in range(attempts):
            trajectory = await sink.store(b'{"steps": []}')
            notes = b"seen"
            blob = await sink.store(notes)
            record = AttemptRecord(
                row, 0, uuid4().hex, "success", reward if row else 0.0, 7, 5.0, None, None, trajectory,
                [Artifact("out/notes.txt", len(notes), blob)] if row == 0 else [],
            )  # fmt: skip
            await sink.attempt(record)

    asyncio.run(fill())
    sink.close()
    write_outputs(folder, status=status, resumed=set())
    return folder


def test_a_local_evaluation_becomes_a_run(osmosis: Any, space: Path, workshop: Any) -> None:
    folder = evaluate(space / ".osmosis/evals")
    document = osmosis("eval", "upload", "local-heron")
    assert (document["operation"], document["status"]) == ("eval.upload", "success")
    resource = document["resource"]
    assert resource["local_run_path"] == str(folder.path)
    assert resource["local_run_id"] == folder.manifest()["local_run_id"]
    assert (resource["status"], resource["expected_files"], resource["uploaded_files"]) == ("finalized", 6, 6)
    assert resource["eval_run_name"] == "local-heron"
    data = osmosis("eval", "info", "local-heron")["data"]
    assert data["eval_run"]["status"] == "finished"
    assert (data["summary"]["avg_reward"], data["summary"]["passed"]) == (0.5, 1)
    assert data["summary"]["dataset_rows"] == 40
    assert osmosis("eval", "download", "local-heron", "--type", "all", "-o", "back")["status"] == "success"
    assert (space / "back/artifacts/row_0_run_0/out/notes.txt").read_bytes() == b"seen"
    assert (space / "back/trajectories/row_1_run_0.json").read_bytes() == b'{"steps": []}'


def test_the_same_upload_again_is_the_same_run(osmosis: Any, space: Path, workshop: Any) -> None:
    folder = evaluate(space / "elsewhere")
    first = osmosis("eval", "upload", str(folder.path))["resource"]
    assert osmosis("eval", "upload", "elsewhere/local-heron")["resource"] == first


def test_other_content_needs_to_be_asked_for(osmosis: Any, space: Path, workshop: Any) -> None:
    folder = evaluate(space / ".osmosis/evals")
    first = osmosis("eval", "upload", "local-heron")["resource"]
    folder.events_path.unlink()
    evaluate(space / ".osmosis/evals", reward=0.25)
    error = osmosis("eval", "upload", "local-heron")["error"]
    assert error["code"] == "CONFLICT"
    assert "--replace" in error["message"]
    again = osmosis("eval", "upload", "local-heron", "--replace")["resource"]
    assert again["eval_run_id"] == first["eval_run_id"]
    assert osmosis("eval", "info", "local-heron")["data"]["summary"]["avg_reward"] == 0.125


@pytest.mark.parametrize(("attempts", "status"), [(1, "finished"), (2, "stopped")])
def test_an_incomplete_evaluation_stays_here(
    osmosis: Any, space: Path, workshop: Any, attempts: int, status: str
) -> None:
    evaluate(space / ".osmosis/evals", attempts=attempts, status=status)
    error = osmosis("eval", "upload", "local-heron")["error"]
    assert error["code"] == "VALIDATION"
    assert "not complete" in error["message"]
    assert osmosis("eval", "list")["total_count"] == 0


def test_files_that_contradict_each_other_are_refused(osmosis: Any, space: Path, workshop: Any) -> None:
    folder = evaluate(space / ".osmosis/evals")
    index = folder.path / "index.jsonl"
    line = index.read_text().splitlines()[0]
    index.write_text(f"{line}\n{line}\n")
    assert "do not belong together" in osmosis("eval", "upload", "local-heron")["error"]["message"]
    index.write_text("{broken\n")
    assert "damaged" in osmosis("eval", "upload", "local-heron")["error"]["message"]
    assert "no local evaluation" in osmosis("eval", "upload", "never-run")["error"]["message"]


def test_a_missing_trajectory_is_named(osmosis: Any, space: Path, workshop: Any) -> None:
    folder = evaluate(space / ".osmosis/evals")
    (folder.path / "trajectories/row_1_run_0.json").unlink()
    error = osmosis("eval", "upload", "local-heron")["error"]
    assert error["code"] == "VALIDATION"
    assert "row_1_run_0.json" in error["message"]


def test_the_hash_of_content_decides_not_its_age(space: Path, tmp_path: Path) -> None:
    from osmosis_ai.cli.uploads.local_run import read_local_run

    folder = evaluate(space / "evals")
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    first = read_local_run(folder.path, tmp_path / "one")
    os.utime(folder.path / "logs.txt", (0, 0))
    second = read_local_run(folder.path, tmp_path / "two")
    assert first.digest == second.digest
    log = next(file for file in first.files if file.path == "logs.txt")
    assert log.sha256 == hashlib.sha256(folder.log_path.read_bytes()).hexdigest()

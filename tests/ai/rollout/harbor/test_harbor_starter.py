"""The Harbor starter works as it is written into a workspace: a process, a sandbox per rollout, an agent with a tool."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from osmosis_ai.rollout.controller import RolloutController
from osmosis_ai.rollout.discovery import discover_rollout
from osmosis_ai.rollout.driver import RolloutRunRequest
from osmosis_ai.templates.starters import apply_starter

NAME = "multiply-harbor-strands"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    apply_starter(NAME, tmp_path / "workspace")
    return tmp_path / "workspace" / "rollouts" / NAME


@pytest.fixture
def url(folder: Path, artifact_root: Path) -> Iterator[str]:
    """The address of the starter's process."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = {
        **os.environ,
        "_OSMOSIS_ROLLOUT_PORT": str(port),
        "_OSMOSIS_ROLLOUT_HOST": "127.0.0.1",
        "_OSMOSIS_ROLLOUT_ARTIFACT_ROOT": str(artifact_root),
    }
    with (folder.parent / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "main.py"], cwd=folder, env=environment, stdout=log, stderr=log
        )
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(timeout=60)


class ToolUser:
    """A policy that calls the tool with the numbers of the question and repeats its answer."""

    async def complete(self, rollout_id: str, body: dict[str, Any]) -> dict[str, Any]:
        def text_of(message: dict[str, Any]) -> str:
            content = message["content"]
            return content if isinstance(content, str) else content[0]["text"]

        last = body["messages"][-1]
        message: dict[str, Any] = {"role": "assistant", "content": f"It is {text_of(last)}"}
        if last["role"] == "user":
            a, b = (int(word) for word in text_of(last).split() if word.isdigit())
            function = {"name": "multiply", "arguments": json.dumps({"a": a, "b": b})}
            message = {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c", "type": "function", "function": function}],
            }
        finish = "tool_calls" if message.get("tool_calls") else "stop"
        return {
            "id": "c",
            "object": "chat.completion",
            "created": 1,
            "model": body["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": finish}],
            "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7},
        }

    def trajectory_report(self, rollout_id: str) -> dict[str, Any] | None:
        return None

    def discard(self, rollout_id: str) -> None:
        pass


def test_the_platform_finds_workflow_and_grader(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = discover_rollout(folder, "main.py")
    assert found.problems == []
    assert found.to_dict() | {"problems": [], "warnings": []} == {
        "ok": True,
        "agent_name": NAME,
        "workflow": "MultiplyWorkflow",
        "workflow_config": NAME,
        "grader": "MultiplyGrader",
        "grader_config": None,
        "problems": [],
        "warnings": [],
    }


async def test_the_starter_multiplies_in_a_sandbox(url: str, folder: Path, artifact_root: Path) -> None:
    async with RolloutController(rollout_url=url, chat=ToolUser(), start_timeout_s=300) as controller:
        assert await controller.capacity() == 8
        result = await controller.run(
            RolloutRunRequest(
                messages=[{"role": "user", "content": "How much is 23 times 47 then"}],
                label="1081",
                rollout_id="r1",
            )
        )
    assert (result.status, result.reward) == ("success", 1.0), (folder.parent / "log").read_text()
    assert result.sample is not None
    assert result.sample["messages"][-1]["content"] == [{"text": "It is 1081"}]
    assert (artifact_root / "r1" / "logs" / "trial.log").is_file()
    # Harbor logs every command that it runs, for the trial's own log.
    assert " DEBUG " not in (folder.parent / "log").read_text()

"""The page on rollouts: its entrypoint works as printed, and it names every code and variable."""

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from osmosis_ai.rollout.discovery import discover_rollout

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "rollouts.md").read_text()
SOURCE = ROOT / "packages" / "osmosis-ai" / "src" / "osmosis_ai" / "rollout"


@pytest.fixture
def entrypoint(tmp_path: Path) -> Path:
    code = re.search(r"## A complete entrypoint\n\n```python\n(.*?)```", PAGE, re.DOTALL)
    assert code
    path = tmp_path / "main.py"
    path.write_text(code.group(1))
    return path


def census(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    last = body["messages"][-1]
    if last["role"] == "tool":
        return 200, {"role": "assistant", "content": f"It has {last['content']} people."}
    function = {"name": "lookup", "arguments": json.dumps({"city": "Oslo"})}
    return 200, {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": function}]}


async def test_printed_entrypoint_serves_a_rollout_as_a_process(
    entrypoint: Path, policy: Any, controller: Any, artifact_root: Path, wait_until: Callable[..., Any]
) -> None:
    found = discover_rollout(entrypoint.parent, "main.py")
    assert (found.problems, found.to_dict()["workflow"], found.to_dict()["grader"]) == (
        [],
        "Census",
        "Contains",
    )

    policy.script = census
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = {
        **os.environ,
        "_OSMOSIS_ROLLOUT_PORT": str(port),
        "_OSMOSIS_ROLLOUT_HOST": "127.0.0.1",
        "_OSMOSIS_ROLLOUT_INSTANCE_ID": "instance-1",
        "_OSMOSIS_ROLLOUT_ARTIFACT_ROOT": str(artifact_root),
    }
    log = entrypoint.with_suffix(".log")
    with log.open("w") as output:
        process = subprocess.Popen(  # noqa: ASYNC220 - starting it takes a moment, its end is awaited below
            [sys.executable, str(entrypoint)], env=environment, stdout=output, stderr=output
        )
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
            await wait_until(lambda: process.poll() is not None or "running on" in log.read_text(), 60)
            assert f"running on http://127.0.0.1:{port}" in log.read_text()
            health = await client.get("/health")
            assert health.headers["x-osmosis-rollout-instance-id"] == "instance-1"
            answer = await client.post(
                "/rollout",
                json={
                    "rollout_id": "r1",
                    "initial_messages": [{"role": "user", "content": "How many people live in Oslo?"}],
                    "chat_completions_url": f"{policy.url}/v1",
                    "completion_callback_url": f"{controller.url}/completion",
                    "grader_callback_url": f"{controller.url}/grader",
                    "controller_api_key": "k",
                    "label": "717710",
                },
            )
            assert answer.status_code == 202
            await wait_until((artifact_root / "r1" / "trajectory.json").exists, 30)
    finally:
        process.terminate()
        process.wait(timeout=20)
    assert controller.calls() == [("completion", "success"), ("grader", "success")]
    assert controller.body_of("/grader")["sample"]["reward"] == 1.0


def test_every_problem_code_is_documented() -> None:
    code = "".join(
        path.read_text() for path in (*(SOURCE / "discovery").glob("*.py"), SOURCE / "validator.py")
    )
    codes = set(re.findall(r'"((?:[A-Z]+_)+[A-Z]+)"', code))
    assert len(codes) >= 16
    assert {code for code in codes if f"`{code}`" not in PAGE} == set()


def test_every_environment_variable_is_documented() -> None:
    names = {
        name
        for path in SOURCE.rglob("*.py")
        if not {"controller", "http_driver.py", "harbor"} & set(path.parts)
        for name in re.findall(r'_ENV = "([A-Z_]+)"', path.read_text())
    }
    assert len(names) == 5
    assert {name for name in names if f"`{name}`" not in PAGE} == set()

"""The server as the platform starts it: a process with its spec on standard input, which is its lifeline."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

Starter = Callable[[Any], "subprocess.Popen[bytes]"]
KEY = "very-secret-key"


@pytest.fixture
def start() -> Iterator[Starter]:
    """Start `python -m osmosis_trainer serve` with one line on its standard input."""
    children: list[subprocess.Popen[bytes]] = []

    def run(line: Any) -> subprocess.Popen[bytes]:
        env = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        child = subprocess.Popen(
            [sys.executable, "-m", "osmosis_trainer", "serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=env,
        )
        children.append(child)
        assert child.stdin is not None
        child.stdin.write((line if isinstance(line, str) else json.dumps(line)).encode() + b"\n")
        child.stdin.flush()
        return child

    yield run
    for child in children:
        if child.poll() is None:
            child.kill()
        with child:
            child.wait(60)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def wait_until_ready(port: int, child: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert child.poll() is None, child.stdout.read() if child.stdout else ""
        try:
            assert httpx.get(f"http://127.0.0.1:{port}/health", timeout=5).status_code == 200
            return
        except httpx.TransportError:
            time.sleep(0.05)
    raise AssertionError("the server did not answer in time")


def spec(port: int, model_folders: Path) -> dict[str, Any]:
    return {
        "host": "127.0.0.1",
        "port": port,
        "api_key": KEY,
        "base_models": {"acme/base": str(model_folders / "base"), "acme/gone": str(model_folders / "gone")},
        "adapters": [{"base": "acme/base", "name": "a", "path": str(model_folders / "lora-a")}],
        "idle_unload_s": 600,
    }


def test_it_dies_with_its_parent(start: Starter, model_folders: Path) -> None:
    port = free_port()
    child = start(spec(port, model_folders))
    wait_until_ready(port, child)
    with openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=KEY) as client:
        assert [model.id for model in client.models.list().data] == ["acme/base", "acme/base:a"]
    assert child.stdin is not None
    child.stdin.close()
    assert child.wait(60) == 70
    assert child.stdout is not None
    log = child.stdout.read().decode()
    assert "acme/gone is not served" in log
    assert KEY not in log


@pytest.mark.slow  # the process imports torch: seconds
def test_it_answers(start: Starter, model_folders: Path) -> None:
    port = free_port()
    wait_until_ready(port, start(spec(port, model_folders)))
    with openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=KEY) as client:
        question: list[Any] = [{"role": "user", "content": "hi"}]
        answer = client.chat.completions.create(model="acme/base:a", messages=question, max_tokens=3)
    assert answer.usage is not None
    assert 1 <= answer.usage.completion_tokens <= 3


def test_it_ends_when_told_to(start: Starter, model_folders: Path) -> None:
    port = free_port()
    child = start(spec(port, model_folders))
    wait_until_ready(port, child)
    child.send_signal(signal.SIGTERM)
    assert child.wait(60) == 0


@pytest.mark.parametrize("line", ["", {"port": "x", "api_key": KEY, "colour": "red"}])
def test_a_bad_spec_is_one_clear_line(start: Starter, line: Any) -> None:
    child = start(line)
    out, _ = child.communicate(timeout=60)
    assert child.returncode == 4
    assert b"Traceback" not in out
    assert KEY.encode() not in out
    if isinstance(line, dict):
        assert b"port: " in out
        assert b"colour: " in out

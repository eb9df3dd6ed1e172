"""A real rollout server in a process of its own, and an inference server that can be told to misbehave."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from osmosis_ai.datasets import DatasetRow
from osmosis_ai.eval.attempt import AttemptRecord

MAIN = Path(__file__).with_name("rollout_main.py")


@dataclass
class RolloutServer:
    """The running agent."""

    url: str
    artifact_root: Path
    instance_id: str
    process: subprocess.Popen[bytes]


@pytest.fixture(scope="session")
def start_rollout_server(tmp_path_factory) -> Iterator[Callable[..., RolloutServer]]:
    running: list[RolloutServer] = []

    def start(port: int = 0, root: Path | None = None) -> RolloutServer:
        root = root or tmp_path_factory.mktemp("artifacts")
        if not port:
            with socket.create_server(("127.0.0.1", 0)) as free:
                port = free.getsockname()[1]
        instance_id = f"instance-{len(running)}"
        env = {
            **os.environ,
            "_OSMOSIS_ROLLOUT_ARTIFACT_ROOT": str(root),
            "_OSMOSIS_ROLLOUT_INSTANCE_ID": instance_id,
        }
        process = subprocess.Popen([sys.executable, str(MAIN), str(port)], env=env)
        server = RolloutServer(f"http://127.0.0.1:{port}", root, instance_id, process)
        running.append(server)
        give_up_at = time.monotonic() + 30
        with httpx.Client() as http:
            while time.monotonic() < give_up_at:
                try:
                    if http.get(server.url + "/health").status_code == 200:
                        return server
                except httpx.TransportError:
                    time.sleep(0.05)
        raise AssertionError("the rollout server did not start")

    yield start
    for server in running:
        server.process.kill()
        server.process.wait()


@pytest.fixture(scope="session")
def agent(start_rollout_server) -> RolloutServer:
    return start_rollout_server()


class Inference:
    """An OpenAI-compatible server that says "42". ``trouble`` holds the statuses of the next answers."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[dict[str, Any]] = []
        self.trouble: list[int] = []
        self.always: int | None = None
        self.gate: asyncio.Event | None = None
        self.seen = asyncio.Condition()
        self.app = FastAPI()
        self.app.add_api_route("/v1/chat/completions", self._complete, methods=["POST"])

    async def until(self, requests: int) -> None:
        async with asyncio.timeout(20), self.seen:
            await self.seen.wait_for(lambda: len(self.requests) >= requests)

    def rollout_requests(self) -> list[dict[str, Any]]:
        return [request for request in self.requests if request["messages"][-1]["content"] != "hi"]

    async def _complete(self, request: Request) -> JSONResponse:
        body = await request.json()
        if request.headers["authorization"] != "Bearer secret-key-123":
            return JSONResponse({"error": {"message": "wrong key", "type": "auth"}}, status_code=401)
        async with self.seen:
            self.requests.append(body)
            status = self.trouble.pop(0) if self.trouble else self.always
            self.seen.notify_all()
        if status is not None:
            error = {"error": {"message": "trouble", "type": "server_error", "code": "t"}}
            return JSONResponse(error, status_code=status)
        if self.gate is not None and body["messages"][-1]["content"] != "hi":
            await self.gate.wait()
        message = {"role": "assistant", "content": "42"}
        usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return JSONResponse(
            {
                "id": "1",
                "object": "chat.completion",
                "created": 1,
                "model": body["model"],
                "choices": [choice],
                "usage": usage,
            }
        )


@pytest.fixture
async def inference(serve_app) -> AsyncIterator[Inference]:
    fake = Inference()
    async with serve_app(fake.app) as url:
        fake.url = url + "/v1"
        yield fake
        if fake.gate is not None:
            fake.gate.set()


class MemoryRows:
    """Rows in memory; ``todo`` maps a row to what the agent does there."""

    def __init__(self, count: int, todo: dict[int, str] | None = None, wrong: tuple[int, ...] = ()) -> None:
        self._rows = [
            DatasetRow(
                index,
                [{"role": "user", "content": f"question {index}"}],
                "43" if index in wrong else "42",
                {"do": todo[index]} if todo and index in todo else None,
            )
            for index in range(count)
        ]

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, indices: list[int]) -> list[DatasetRow]:
        return [self._rows[index] for index in indices]


@dataclass
class MemorySink:
    """Keeps what a run reports."""

    stop_requested: asyncio.Event = field(default_factory=asyncio.Event)
    earlier: list[dict[str, Any]] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    attempts: dict[tuple[int, int], AttemptRecord] = field(default_factory=dict)
    logs: list[str] = field(default_factory=list)
    state: dict[str, Any] = field(default_factory=dict)
    fail_attempts: bool = False

    async def finished(self) -> AsyncIterator[dict[str, Any]]:
        for attempt in self.earlier:
            yield attempt

    async def store(self, content: bytes) -> str:
        import hashlib

        digest = hashlib.sha256(content).hexdigest()
        self.files[digest] = content
        return digest

    async def attempt(self, record: AttemptRecord) -> None:
        if self.fail_attempts:
            raise ConnectionError("the sink is gone")
        key = (record.row_index, record.run_index)
        assert key not in self.attempts, f"{key} was recorded twice"
        self.attempts[key] = record

    def progress(self, **fields: Any) -> None:
        self.state |= fields

    def log(self, message: str, *, level: str = "info", details: Any = None) -> None:
        self.logs.append(message)


@dataclass
class Worker:
    """A running ``python -m osmosis_ai.eval.worker``."""

    process: asyncio.subprocess.Process
    log: str = ""

    async def exit_status(self) -> int:
        errors = await asyncio.wait_for(self.process.stderr.read(), 240)
        assert b"secret-key-123" not in errors
        self.log = errors.decode()
        return await self.process.wait()


@pytest.fixture
async def start_worker(agent, platform, inference, tmp_path) -> AsyncIterator[Callable[..., Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    workers: list[Worker] = []

    async def start(
        count: int,
        *,
        todo: dict[int, str] | None = None,
        api_key: str = "secret-key-123",
        policy: dict[str, Any] | None = None,
        env: dict[str, str] | None = None,
        **evaluation: Any,
    ):
        rows = MemoryRows(count, todo).read(list(range(count)))
        table = [
            {
                "row_index": row.row_index,
                "system_prompt": None,
                "user_prompt": row.messages[0]["content"],
                "ground_truth": row.label,
                "metadata": json.dumps(row.metadata) if row.metadata else None,
            }
            for row in rows
        ]
        names = ("system_prompt", "user_prompt", "ground_truth", "metadata")
        schema = pa.schema([("row_index", pa.int64()), *((name, pa.string()) for name in names)])
        pq.write_table(pa.Table.from_pylist(table, schema=schema), tmp_path / "rows.parquet")
        spec = {
            "kind": "eval",
            "run_id": "run-1",
            "run_name": "my-run",
            "api_url": platform.url,
            "run_token": platform.token,
            "work_dir": str(tmp_path / "work"),
            "rollout_url": agent.url,
            "rollout_instance_id": agent.instance_id,
            "artifact_root": str(agent.artifact_root),
            "dataset_path": str(tmp_path / "rows.parquet"),
            "dataset_rows": count,
            "config": {"experiment": {}, "evaluation": {"limit": count, **evaluation}, "advanced": {}},
            "policy": policy
            or {"kind": "hosted", "base_url": inference.url, "api_key": api_key, "model": "policy"},
        }
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "osmosis_ai.eval.worker"),
            stdin=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **(env or {})},
        )
        process.stdin.write(json.dumps(spec).encode() + b"\n")
        await process.stdin.drain()
        workers.append(Worker(process))
        return workers[-1]

    yield start
    for worker in workers:
        if worker.process.returncode is None:
            worker.process.kill()
        await worker.process.wait()


@pytest.fixture
def memory_rows() -> type[MemoryRows]:
    return MemoryRows


@pytest.fixture
def sink() -> MemorySink:
    return MemorySink()

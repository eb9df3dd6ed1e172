"""A stand-in for the platform's run API, and a way to serve an app on loopback."""

import asyncio
import contextlib
import hashlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse


class _EmbeddedServer(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self):
        yield


@contextlib.asynccontextmanager
async def _serve(app: Any, *, port: int = 0) -> AsyncIterator[str]:
    listening = socket.create_server(("127.0.0.1", port), backlog=4096)
    config = uvicorn.Config(
        app, log_config=None, lifespan="off", ws="none", timeout_graceful_shutdown=1, backlog=4096
    )
    server = _EmbeddedServer(config)
    task = asyncio.create_task(server.serve(sockets=[listening]))
    while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.005)
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        await task


class FakePlatform:
    """The run API as the platform keeps it: keyed events, one transaction per call, verified blobs."""

    token = "run-token"

    def __init__(self) -> None:
        self.calls: list[list[dict[str, Any]]] = []
        self.logs: dict[str, dict[str, Any]] = {}
        self.progress: dict[str, Any] = {}
        self.metrics: dict[tuple[int, str], float] = {}
        self.attempts: dict[tuple[int, int], dict[str, Any]] = {}
        self.samples: dict[tuple[int, int, int], dict[str, Any]] = {}
        self.checkpoints: dict[int, dict[str, Any]] = {}
        self.failure: dict[str, Any] | None = None
        self.blobs: dict[str, bytes] = {}
        self.puts = 0
        self.stop_requested = False
        self.trouble: list[int | None] = []
        """Statuses to answer instead; None commits the call and then answers 502."""
        self.changed = asyncio.Condition()
        self.app = FastAPI()
        self.app.add_api_route("/api/runs/{run_id}/events", self._events, methods=["POST"])
        self.app.add_api_route("/api/runs/{run_id}/blobs/{digest}", self._blob, methods=["PUT"])
        self.app.add_api_route("/api/runs/{run_id}/attempts", self._attempts)

    async def until(self, condition: Any, timeout: float = 10.0) -> None:
        async with asyncio.timeout(timeout), self.changed:
            await self.changed.wait_for(condition)

    def messages(self) -> list[str]:
        return [log["message"] for log in self.logs.values()]

    def _refuse(self, request: Request) -> JSONResponse | None:
        if request.headers.get("authorization") != f"Bearer {self.token}":
            return JSONResponse({"detail": "wrong run token"}, status_code=401)
        if self.trouble and self.trouble[0] is not None:
            return JSONResponse({"detail": "trouble"}, status_code=self.trouble.pop(0) or 500)
        return None

    async def _events(self, request: Request) -> JSONResponse:
        refusal = self._refuse(request)
        if refusal is not None:
            return refusal
        events = (await request.json())["events"]
        self.calls.append(events)
        for event in events:
            self._apply(event)
        async with self.changed:
            self.changed.notify_all()
        if self.trouble:
            self.trouble.pop(0)
            return JSONResponse({"detail": "the answer was lost"}, status_code=502)
        return JSONResponse({"accepted": len(events), "stop_requested": self.stop_requested})

    def _apply(self, event: dict[str, Any]) -> None:
        match event["type"]:
            case "log":
                self.logs.setdefault(event["id"], event)
            case "progress":
                self.progress |= {key: value for key, value in event.items() if key != "type"}
            case "metrics":
                for key, value in event["values"].items():
                    self.metrics[(event["step"], key)] = value
            case "attempt":
                assert event.get("trajectory_blob") is None or event["trajectory_blob"] in self.blobs
                assert all(artifact["sha256"] in self.blobs for artifact in event.get("artifacts", []))
                self.attempts.setdefault((event["row_index"], event["run_index"]), event)
            case "sample":
                key = (event["step"], event["row_index"], event["sample_index"])
                self.samples.setdefault(key, event)
            case "checkpoint":
                self.checkpoints.setdefault(event["step"], event)
            case "failed":
                self.failure = event
            case other:
                raise AssertionError(f"unknown event {other}")

    async def _blob(self, digest: str, request: Request) -> JSONResponse:
        refusal = self._refuse(request)
        if refusal is not None:
            return refusal
        content = await request.body()
        if hashlib.sha256(content).hexdigest() != digest:
            return JSONResponse({"detail": "content does not match the hash"}, status_code=422)
        self.puts += 1
        self.blobs[digest] = content
        return JSONResponse({}, status_code=201)

    async def _attempts(self, request: Request, limit: int = 100, after: int = 0) -> JSONResponse:
        refusal = self._refuse(request)
        if refusal is not None:
            return refusal
        ordered = list(self.attempts.values())
        page = ordered[after : after + limit]
        more = after + limit < len(ordered)
        return JSONResponse({"attempts": page, "next_after": after + limit if more else None})


@pytest.fixture
def serve_app() -> Any:
    """``async with serve_app(app, port=0) as url``."""
    return _serve


@pytest.fixture
async def platform() -> AsyncIterator[FakePlatform]:
    """A running platform; its address is ``platform.url``."""
    fake = FakePlatform()
    async with _serve(fake.app) as url:
        fake.url = url
        yield fake


@pytest.fixture
def unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
    return port

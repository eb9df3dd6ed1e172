"""Real HTTP parts for rollout tests: a policy that speaks the OpenAI wire format, a callback receiver, a served app."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import uvicorn

type Json = dict[str, Any]


@dataclass
class Exchange:
    """A request that a test server received."""

    path: str
    headers: dict[str, str]
    body: Json


class LoopbackServer:
    """A threaded HTTP server on loopback that keeps the requests it got."""

    def __init__(self, answer: Callable[[Exchange, BaseHTTPRequestHandler], None]) -> None:
        self.requests: list[Exchange] = []
        received = self.requests

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args: object) -> None:
                pass

            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                exchange = Exchange(self.path, headers, json.loads(raw))
                received.append(exchange)
                answer(exchange, self)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def send_json(handler: BaseHTTPRequestHandler, status: int, body: Any) -> None:
    data = b"" if status == 204 else json.dumps(body).encode()
    handler.send_response(status)
    handler.send_header("content-type", "application/json")
    handler.send_header("content-length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data)


def whole_delta(message: Json) -> Json:
    """The whole message as one streamed delta."""
    calls = [{**call, "index": index} for index, call in enumerate(message.get("tool_calls") or [])]
    return {**message, **({"tool_calls": calls} if calls else {})}


def pieces_of(message: Json, size: int = 3) -> Iterator[Json]:
    """The message as deltas of `size` characters, the way token streams arrive."""
    yield {"role": "assistant"}
    for field_name in ("reasoning_content", "content"):
        text = message.get(field_name) or ""
        for start in range(0, len(text), size):
            yield {field_name: text[start : start + size]}
    for index, call in enumerate(message.get("tool_calls") or []):
        function = call["function"]
        yield {
            "tool_calls": [{**call, "index": index, "function": {"name": function["name"], "arguments": ""}}]
        }
        for start in range(0, len(function["arguments"]), size):
            part = {"arguments": function["arguments"][start : start + size]}
            yield {"tool_calls": [{"index": index, "function": part}]}


class PolicyStub(LoopbackServer):
    """Calls the first tool with 6 and 7, then answers with the tool's result. `script` replaces the decision.

    With `in_pieces` the texts and arguments of a streamed answer come a few characters at a time. With `stream_error` a streamed
    answer breaks off in the middle, with this message.
    """

    USAGE: Json = {
        "prompt_tokens": 11,
        "completion_tokens": 3,
        "total_tokens": 14,
        "prompt_tokens_details": {"cached_tokens": 4},
    }

    def __init__(self) -> None:
        self.script: Callable[[Json], tuple[int, Json]] = self.decide
        self.in_pieces = False
        self.stream_error: str | None = None
        super().__init__(self._answer)

    @staticmethod
    def decide(body: Json) -> tuple[int, Json]:
        last = body["messages"][-1]
        if last["role"] == "tool" or not body.get("tools"):
            content = last["content"]
            text = content if isinstance(content, str) else content[0]["text"]
            return 200, {"role": "assistant", "content": f"The answer is {text}"}
        name = body["tools"][0]["function"]["name"]
        function = {"name": name, "arguments": json.dumps({"a": 6, "b": 7})}
        call = {"id": "call_1", "type": "function", "function": function}
        return 200, {
            "role": "assistant",
            "content": None,
            "reasoning_content": "I should multiply.",
            "tool_calls": [call],
        }

    def _answer(self, exchange: Exchange, handler: BaseHTTPRequestHandler) -> None:
        status, message = self.script(exchange.body)
        if status != 200:
            send_json(handler, status, message)
            return
        base = {
            "id": f"chatcmpl-{len(self.requests)}",
            "created": 1_700_000_000,
            "model": exchange.body["model"],
        }
        finish = "tool_calls" if message.get("tool_calls") else "stop"
        if not exchange.body.get("stream"):
            choice = {"index": 0, "message": message, "finish_reason": finish}
            send_json(
                handler, 200, {**base, "object": "chat.completion", "choices": [choice], "usage": self.USAGE}
            )
            return
        deltas = pieces_of(message) if self.in_pieces else [whole_delta(message)]
        chunks: list[Json] = [
            {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas
        ]
        chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
        if (exchange.body.get("stream_options") or {}).get("include_usage"):
            chunks.append({"choices": [], "usage": self.USAGE})
        handler.send_response(200)
        handler.send_header("content-type", "text/event-stream")
        handler.send_header("connection", "close")
        handler.end_headers()
        if self.stream_error is not None:
            chunks = chunks[:1]
        for chunk in chunks:
            event = json.dumps({**base, "object": "chat.completion.chunk", **chunk})
            handler.wfile.write(f"data: {event}\n\n".encode())
        if self.stream_error is not None:
            error = json.dumps({"error": {"message": self.stream_error, "type": "upstream", "code": "x"}})
            handler.wfile.write(f"event: error\ndata: {error}\n\n".encode())
        handler.wfile.write(b"data: [DONE]\n\n")
        handler.close_connection = True


class Controller(LoopbackServer):
    """Receives callbacks. `answers` maps a path to a queue of (status, body); the last one repeats."""

    def __init__(self) -> None:
        self.answers: dict[str, list[tuple[int, Any]]] = {}
        super().__init__(self._answer)

    def _answer(self, exchange: Exchange, handler: BaseHTTPRequestHandler) -> None:
        queue = self.answers.get(exchange.path, [(200, {"ok": True})])
        status, body = queue.pop(0) if len(queue) > 1 else queue[0]
        send_json(handler, status, body)

    def calls(self) -> list[tuple[str, str]]:
        """(path, status) of every callback, in order."""
        return [(exchange.path.strip("/"), exchange.body["status"]) for exchange in self.requests]

    def body_of(self, path: str) -> Json:
        return next(exchange.body for exchange in self.requests if exchange.path == path)


@dataclass
class ServedApp:
    url: str
    server: uvicorn.Server = field(repr=False)


@asynccontextmanager
async def serve(app: Any) -> AsyncIterator[ServedApp]:
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning", ws="none"))
    task = asyncio.create_task(server.serve())
    try:
        await wait_until(lambda: server.started or task.done())
        port = server.servers[0].sockets[0].getsockname()[1]
        yield ServedApp(f"http://127.0.0.1:{port}", server)
    finally:
        server.should_exit = True
        await task


async def wait_until(condition: Callable[[], Any], timeout_sec: float = 10.0) -> None:
    async with asyncio.timeout(timeout_sec):
        while not condition():  # noqa: ASYNC110 - conditions of foreign threads and files have no event
            await asyncio.sleep(0.01)


@pytest.fixture
def policy() -> Iterator[PolicyStub]:
    server = PolicyStub()
    yield server
    server.close()


@pytest.fixture
def controller() -> Iterator[Controller]:
    server = Controller()
    yield server
    server.close()


@pytest.fixture(name="serve")
def serve_fixture() -> Callable[[Any], AbstractAsyncContextManager[ServedApp]]:
    """Serve an ASGI app on loopback."""
    return serve


@pytest.fixture(name="wait_until")
def wait_until_fixture() -> Callable[..., Any]:
    """Wait for a condition, with a deadline."""
    return wait_until


ATIF_SCHEMA = json.loads((Path(__file__).parent / "atif_v1_7.schema.json").read_text())


@pytest.fixture
def check_atif() -> Callable[[Json], None]:
    """Fail unless a document is ATIF v1.7, cross-field rules included."""
    validator = jsonschema.Draft202012Validator(ATIF_SCHEMA)

    def check(document: Json) -> None:
        validator.validate(document)
        for position, step in enumerate(document["steps"], start=1):
            assert step["step_id"] == position
            if "timestamp" in step:
                datetime.fromisoformat(step["timestamp"])
            calls = {call["tool_call_id"] for call in step.get("tool_calls", [])}
            results = step.get("observation", {"results": []})["results"]
            assert {result["source_call_id"] for result in results if "source_call_id" in result} <= calls
        assert document.get("final_metrics", {}).get("total_steps") in (None, len(document["steps"]))

    return check


@pytest.fixture(autouse=True)
def artifact_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Rollout folders go here, never to the user's home."""
    root = tmp_path / "rollouts"
    monkeypatch.setenv("_OSMOSIS_ROLLOUT_ARTIFACT_ROOT", str(root))
    for name in ("OSMOSIS_CHAT_COMPLETIONS_URL", "OSMOSIS_API_KEY", "OSMOSIS_ROLLOUT_ID", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    return root

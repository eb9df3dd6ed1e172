"""A judge on loopback that speaks the OpenAI wire format, and an environment without anybody's keys."""

import json
import os
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

type Json = dict[str, Any]


def completion(content: str | None) -> Json:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "choices": [
            {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content}}
        ],
        "usage": {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100},
    }


class JudgeServer:
    """Answers each request by ``decide(request) -> (status, body)``; keeps requests and the largest number at once."""

    def __init__(self) -> None:
        self.requests: list[Json] = []
        self.keys: list[str] = []
        self.decide: Callable[[Json], tuple[int, Json]] = lambda _: self.score(0.5)
        judge = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args: object) -> None:
                pass

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                judge.requests.append(body)
                judge.keys.append(self.headers.get("authorization", ""))
                status, answer = judge.decide(body)
                if "choices" in answer:
                    answer = answer | {"model": body["model"]}
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    @staticmethod
    def score(score: float, explanation: str = "fine") -> tuple[int, Json]:
        return 200, completion(json.dumps({"score": score, "explanation": explanation}))

    @staticmethod
    def text(content: str | None) -> tuple[int, Json]:
        return 200, completion(content)

    @staticmethod
    def error(status: int, message: str, code: str | None = None) -> tuple[int, Json]:
        return status, {"error": {"message": message, "type": "error", "code": code}}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def judge() -> Iterator[JudgeServer]:
    server = JudgeServer()
    yield server
    server.close()


@pytest.fixture(autouse=True)
def _own_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No key, no proxy and no `.env` file of the machine; the current folder is the test's own."""
    for name in list(os.environ):
        if name.endswith(("_API_KEY", "_API_BASE", "_BASE_URL", "_PROXY", "_proxy")) or name.startswith(
            "OSMOSIS_"
        ):
            monkeypatch.delenv(name)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def write_records(tmp_path: Path) -> Callable[..., Path]:
    """Write records as JSON lines."""

    def write(*records: Json) -> Path:
        path = tmp_path / "records.jsonl"
        path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
        return path

    return write

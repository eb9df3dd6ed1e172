"""An evaluation of a provider's model on a whole platform, through the real LiteLLM; the provider is a server on loopback."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

KEY = "sk-canary-77aa1c"
ROWS = 4
# LiteLLM takes seconds to import, and the rollout's environment is built first.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


class Provider:
    """Says "42" to whoever has the key."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                provider.requests.append(body)
                status, answer = provider.answer(body, self.headers["Authorization"] == f"Bearer {KEY}")
                content = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @staticmethod
    def answer(body: dict[str, Any], known: bool) -> tuple[int, dict[str, Any]]:
        if not known:
            return 401, {"error": {"message": "Incorrect API key provided", "type": "auth", "code": None}}
        message = {"role": "assistant", "content": "42!"}
        usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
        choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
        head = {"id": "1", "object": "chat.completion", "created": 1, "model": body["model"]}
        return 200, {**head, "choices": choices, "usage": usage}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def provider() -> Iterator[Provider]:
    server = Provider()
    yield server
    server.close()


def test_a_providers_model_is_evaluated(
    deployment: Any, provider: Provider, recorder: Any, until: Callable[..., Any]
) -> None:
    rows = [{"user_prompt": f"q{row}", "ground_truth": "42", "metadata": {"row": row}} for row in range(ROWS)]
    deployment.upload("rows", "".join(json.dumps(row) + "\n" for row in rows).encode())

    def evaluate(key: str) -> tuple[str, dict[str, Any]]:
        run_id = deployment.submit(
            "eval",
            experiment_config={"model_path": "openai/some-model", "dataset": "rows"},
            evaluation_config={"limit": ROWS, "n": 1},
            env_config={"RECORDER_URL": recorder.url, "PAUSE": "0", "OPENAI_BASE_URL": provider.url},
            secrets={"required": ["OPENAI_API_KEY"], "provided": {"OPENAI_API_KEY": key}},
        )

        def ended() -> dict[str, Any] | None:
            run: dict[str, Any] = deployment.get(f"/api/cli/eval-runs/{run_id}")["eval_run"]
            return run if run["status"] not in ("pending", "running") else None

        return run_id, until("the end of the run", ended, 300, lambda: deployment.logs("eval", run_id))

    run_id, run = evaluate(KEY)
    assert run["status"] == "finished", run
    assert len(recorder.executions) == ROWS
    assert {request["model"] for request in provider.requests} == {"some-model"}
    results = deployment.get(f"/api/cli/eval-runs/{run_id}")["results"]
    assert (results["score"], results["total_runs"]) == (1.0, ROWS), results

    wrong_id, wrong = evaluate("sk-wrong-0000")
    assert wrong["status"] == "failed"
    for word in ("openai/some-model", "cannot be used", "Incorrect API key"):
        assert word in wrong["error"]
    assert len(recorder.executions) == ROWS  # no row was tried

    for identity in (run_id, wrong_id):
        logs = deployment.logs("eval", identity)
        assert KEY not in logs
        assert "sk-wrong-0000" not in logs

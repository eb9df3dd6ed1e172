"""`POST /rollout` is answered the same with and without the web framework's layers."""

import asyncio
import json
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.requests import ClientDisconnect
from starlette.types import Message

from osmosis_ai.rollout import ExecutionBackend
from osmosis_ai.rollout.server import create_rollout_server
from osmosis_ai.rollout.utils import request_size

BODY = {
    "initial_messages": [],
    "chat_completions_url": "http://127.0.0.1:9",
    "completion_callback_url": "http://127.0.0.1:9/completion",
    "rollout_id": "r1",
}
POLLED = {"initial_messages": [], "chat_completions_url": "", "rollout_id": "p1"}


SCOPE = {
    "type": "http",
    "method": "POST",
    "path": "/rollout",
    "raw_path": b"/rollout",
    "query_string": b"",
    "headers": [(b"content-type", b"application/json")],
}


class Full(ExecutionBackend):
    """Admits one rollout in two, and keeps what it admitted running."""

    def __init__(self, capacity: bool = True) -> None:
        self.capacity = capacity
        self.started: list[str] = []

    async def execute(self, request: Any, on_workflow_complete: Any, on_grader_complete: Any = None) -> None:
        self.started.append(request.id)
        await asyncio.Event().wait()

    def has_capacity(self) -> bool:
        return self.capacity


def servers(*, direct: bool, capacity: bool = True, api_key: str | None = None) -> tuple[FastAPI, Full]:
    backend = Full(capacity)
    server = create_rollout_server(backend=backend, configure_logging=False, api_key=api_key)
    if not direct:
        server.user_middleware = [entry for entry in server.user_middleware if "key" in entry.kwargs]
    return server, backend


async def answer(server: Any, path: str, content: Any, **headers: str) -> tuple[int, dict[str, str], Any]:
    transport = httpx.ASGITransport(server, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
        kind = {"content-type": "application/json"}
        response = await client.post(path, content=content, headers=kind | headers)
    body = response.text
    if "polling_lease_token" in body:
        body = {**response.json(), "polling_lease_token": "random"}
        del response.headers["content-length"]
    return response.status_code, dict(response.headers), body


async def in_pieces(raw: bytes) -> Any:
    for start in range(0, len(raw), 7):
        yield raw[start : start + 7]


CASES: dict[str, dict[str, Any]] = {
    "called back": {"content": BODY, "status": 202},
    "polled": {"content": POLLED, "status": 202},
    "no capacity": {"content": BODY, "status": 429, "capacity": False},
    "wrong fields": {"content": {**BODY, "label": 1, "rollout_id": "../x"}, "status": 422},
    "no object": {"content": [BODY], "status": 422},
    "not JSON": {"content": b'{"initial', "status": 422},
    "not finite": {"content": b'{"agent_timeout_sec": NaN}', "status": 422},
    "no JSON type": {"content": BODY, "headers": {"content-type": "text/plain"}, "status": 422},
    "another JSON type": {
        "content": BODY,
        "headers": {"content-type": "Application/x+JSON; charset=utf-8"},
        "status": 202,
    },
    "too large": {"content": {**BODY, "label": "x" * 2000}, "status": 413},
    "no key": {"content": BODY, "api_key": "secret", "status": 401},
    "right key": {
        "content": BODY,
        "api_key": "secret",
        "headers": {"authorization": "Bearer secret"},
        "status": 202,
    },
    "redirect": {"content": BODY, "path": "/rollout/", "status": 307},
    "elsewhere": {"content": BODY, "path": "/rollouts", "status": 404},
}


@pytest.mark.parametrize("pieces", [False, True], ids=["whole", "in pieces"])
@pytest.mark.parametrize("case", CASES)
async def test_the_answer_is_the_same(case: str, pieces: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_size, "MAX_BODY_BYTES", 1000)
    chosen = CASES[case]
    content = chosen["content"]
    raw = content if isinstance(content, bytes) else json.dumps(content).encode()
    options = {name: chosen[name] for name in ("capacity", "api_key") if name in chosen}
    answers = []
    for direct in (True, False):
        server, backend = servers(direct=direct, **options)
        sent = in_pieces(raw) if pieces else raw
        answers.append(
            await answer(server, chosen.get("path", "/rollout"), sent, **chosen.get("headers", {}))
        )
        await asyncio.sleep(0)
        assert len(backend.started) == (chosen["status"] == 202)
    assert answers[0] == answers[1]
    assert answers[0][0] == chosen["status"]


async def test_an_accepted_request_reaches_no_layer_of_the_framework_and_a_refused_one_reaches_it_whole() -> (
    None
):
    server, _ = servers(direct=True)
    reached: list[bytes] = []

    async def inside(scope: Any, receive: Any, send: Any) -> None:
        chunks = [await receive(), await receive()]
        reached.append(b"".join(message["body"] for message in chunks))
        await send({"type": "http.response.start", "status": 418, "headers": []})
        await send({"type": "http.response.body"})

    server.router = inside  # type: ignore[assignment]
    assert (await answer(server, "/rollout", json.dumps(BODY)))[0] == 202
    assert reached == []

    async def halves() -> Any:
        yield b'{"rollout'
        yield b'_id": ""}'

    assert (await answer(server, "/rollout", halves()))[0] == 418
    assert reached == [b'{"rollout_id": ""}']


async def test_a_client_that_goes_away_starts_nothing() -> None:
    server, backend = servers(direct=True)
    messages = iter(
        [
            {"type": "http.request", "body": json.dumps(BODY).encode(), "more_body": True},
            {"type": "http.disconnect"},
        ]
    )
    sent: list[Message] = []

    async def receive() -> Any:
        return next(messages)

    async def send(message: Message) -> None:
        sent.append(message)

    with pytest.raises(ClientDisconnect):
        await server(dict(SCOPE), receive, send)
    await asyncio.sleep(0)
    assert backend.started == []


async def test_a_client_that_never_reads_its_answer_does_not_lose_the_rollout() -> None:
    server, backend = servers(direct=True)

    async def receive() -> Any:
        return {"type": "http.request", "body": json.dumps(BODY).encode()}

    async def send(message: Message) -> None:
        raise OSError("connection lost")

    with pytest.raises(OSError, match="connection lost"):
        await server(dict(SCOPE), receive, send)
    await asyncio.sleep(0)
    assert backend.started == ["r1"]


@pytest.mark.parametrize("as_root_path", [False, True])
async def test_the_application_works_below_another_path(as_root_path: bool) -> None:
    server, backend = servers(direct=True)
    outer: Any = server
    if as_root_path:
        server.root_path = "/below"
    else:
        outer = FastAPI()
        outer.mount("/below", server)
    assert (await answer(outer, "/below/rollout", json.dumps(BODY)))[0] == 202
    await asyncio.sleep(0)
    assert len(backend.started) == 1

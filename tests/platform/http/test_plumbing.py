"""Error envelope, request ids, encoded slashes, versions and headers, over the real application."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import httpx
import pytest
from fastapi import APIRouter
from fastapi.testclient import TestClient
from pydantic import BaseModel
from sqlalchemy.exc import OperationalError

from osmosis_platform.app import create_app
from osmosis_platform.context import Platform
from osmosis_platform.settings import Settings


class Body(BaseModel):
    n: int
    name: str


@pytest.fixture
def probe(platform: Platform) -> Iterator[httpx.Client]:
    router = APIRouter()

    @router.get("/api/probe/fail")
    def fail() -> None:
        raise RuntimeError("the-inner-text")

    @router.get("/api/probe/database")
    def database() -> None:
        raise OperationalError("SELECT", {}, OSError("connection refused"))

    @router.post("/api/probe/body")
    def body(body: Body) -> dict[str, int]:
        return {"n": body.n}

    @router.get("/api/probe/{first}/{second}")
    def names(first: str, second: str) -> list[str]:
        return [first, second]

    app = create_app(platform)
    app.include_router(router)
    # The dashboard's catch-all routes come before ours.
    app.router.routes.insert(0, app.router.routes.pop())
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client


def test_unknown_route_is_an_envelope(client: httpx.Client) -> None:
    answer = client.get("/api/cli/nowhere")
    assert answer.status_code == 404
    body = answer.json()
    assert body["code"] == "NOT_FOUND"
    assert body["error"] == body["message"]
    assert "detail" not in body


def test_wrong_method_is_an_envelope(client: httpx.Client) -> None:
    answer = client.put("/api/cli/device/token")
    assert answer.status_code == 405
    assert answer.json()["code"] == "METHOD_NOT_ALLOWED"
    assert answer.headers["allow"] == "POST"
    several = client.put("/api/cli/environment-secrets")
    assert several.headers["allow"] == "DELETE, GET, POST", "of all routes at that path"


def test_no_redirect_to_a_trailing_slash(client: httpx.Client) -> None:
    assert client.get("/health/", follow_redirects=False).status_code != 307


def test_unexpected_error_tells_the_log_but_not_the_caller(
    probe: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        answer = probe.get("/api/probe/fail", headers={"X-Request-Id": "req-7"})
    assert answer.status_code == 500
    assert answer.headers["x-request-id"] == "req-7"
    body = answer.json()
    assert (body["code"], body["request_id"]) == ("INTERNAL", "req-7")
    assert "the-inner-text" not in answer.text
    assert "the-inner-text" in caplog.text
    assert "req-7" in caplog.text


def test_a_database_that_does_not_answer_is_told(
    probe: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    answer = probe.get("/api/probe/database")
    assert (answer.status_code, answer.json()["code"]) == (503, "DATABASE_UNAVAILABLE")
    assert answer.headers["x-request-id"] in answer.json()["error"]
    assert "connection refused" in caplog.text


def test_nobody_writes_lines_into_the_log(client: httpx.Client, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "osmosis_platform"):
        client.get("/api/a%0AERROR%20forged?password=hunter2")
    (line,) = [record.getMessage() for record in caplog.records if record.name == "osmosis_platform.http"]
    assert line.startswith("GET /api/a%0AERROR%20forged 404 ")
    assert "hunter2" not in caplog.text


def test_unsafe_request_id_is_replaced(probe: httpx.Client) -> None:
    given = "a b" + "c" * 100
    got = probe.get("/health", headers={"X-Request-Id": given}).headers["x-request-id"]
    assert got != given
    assert len(got) == 32


def test_invalid_body_is_400_and_does_not_echo_it(probe: httpx.Client) -> None:
    answer = probe.post("/api/probe/body", json={"n": "hunter2-secret", "name": 3})
    assert answer.status_code == 400
    body = answer.json()
    assert (body["code"], body["field"]) == ("VALIDATION", "n")
    assert {issue["key"] for issue in body["issues"]} == {"n", "name"}
    assert "hunter2-secret" not in answer.text
    broken = probe.post("/api/probe/body", content=b"{", headers={"Content-Type": "application/json"})
    assert (broken.status_code, broken.json()["code"]) == (400, "VALIDATION")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/api/probe/base/org%2Fmodel", ["base", "org/model"]),
        ("/api/probe/a%2fb/c%20d%7Ce", ["a/b", "c d|e"]),
        ("/api/probe/a%252Fb/x%2F%2Fy", ["a%2Fb", "x//y"]),
        ("/api/probe/gr%C3%BC%C3%9Fe/z%2F%C3%A4", ["grüße", "z/ä"]),
    ],
)
def test_encoded_slash_stays_inside_its_segment(probe: httpx.Client, path: str, expected: list[str]) -> None:
    assert probe.get(path).json() == expected


def test_answers_carry_safe_headers(client: httpx.Client) -> None:
    headers = client.get("/api/cli/verify").headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]


def test_health_and_openapi(client: httpx.Client) -> None:
    health = client.get("/health").json()
    assert health["ready"] is True
    assert health["parts"]["database"] == "ok"
    assert "/api/cli/verify" in client.get("/openapi.json").json()["paths"]


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(
        update={
            "minimum_cli_version": "0.3.0rc1",
            "deprecated_cli_version": "0.3.2",
            "latest_cli_version": "0.3.8",
        }
    )


@pytest.mark.parametrize(
    ("version", "status", "signal"),
    [
        ("0.2.9", 426, None),
        ("0.3.0rc1", 200, "deprecated"),
        ("0.3.2", 200, "deprecated"),
        ("0.3.3", 200, "upgrade_available"),
        ("0.3.8", 200, None),
        ("0.4.0", 200, None),
        ("not a version", 200, None),
        (None, 200, None),
    ],
)
def test_old_clients_are_told(
    client: httpx.Client, version: str | None, status: int, signal: str | None
) -> None:
    headers = {"X-Osmosis-CLI-Version": version} if version else {}
    answer = client.get("/health", headers=headers)
    assert answer.status_code == status
    assert answer.headers.get("x-osmosis-version-status") == signal
    assert ("x-osmosis-version-message" in answer.headers) == (signal is not None)
    if status == 426:
        assert set(answer.json()) == {"status", "message"}
        assert answer.json()["status"] == "unsupported"
        assert answer.json()["message"].startswith("Upgrade required: ")
    if signal:
        text = answer.headers["x-osmosis-version-message"]
        assert text.isascii()
        assert len(text.splitlines()) == 1


def test_signal_is_only_on_success(client: httpx.Client) -> None:
    answer = client.get("/api/cli/verify", headers={"X-Osmosis-CLI-Version": "0.3.1"})
    assert answer.status_code == 401
    assert "x-osmosis-version-status" not in answer.headers


@pytest.mark.parametrize("chunked", [False, True])
def test_large_json_is_refused_while_it_arrives(client: httpx.Client, chunked: bool) -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(64):
            yield b" " * 2**20

    content = pieces() if chunked else b" " * (17 * 2**20)
    answer = client.post(
        "/api/cli/device/authorize", content=content, headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 413
    assert "16 MiB" in answer.json()["error"]
    assert answer.headers["x-request-id"]

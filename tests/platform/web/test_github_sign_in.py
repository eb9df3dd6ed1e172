"""Signing in with GitHub, against a local server that speaks GitHub's side of it."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from pydantic import SecretStr

from osmosis_platform.accounts import sessions
from osmosis_platform.context import Platform

START, BACK = "/sign-in/github", "/sign-in/github/callback"
EMAILS = [
    {"email": "other@example.com", "primary": False, "verified": True},
    {"email": "Max@Example.com", "primary": True, "verified": True},
]


class GitHub:
    """Grants codes by `authorize` and checks what GitHub checks: client, secret, redirect and PKCE."""

    def __init__(self) -> None:
        self.emails: Any = EMAILS
        self.codes: dict[str, dict[str, str]] = {}
        github = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = {
                    k: v[0]
                    for k, v in parse_qs(
                        self.rfile.read(int(self.headers["content-length"])).decode()
                    ).items()
                }
                asked = github.codes.pop(form.get("code", ""), None)
                challenge = base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest())
                good = (
                    asked is not None
                    and (form["client_id"], form["client_secret"]) == ("app", "hush")
                    and form["redirect_uri"] == asked["redirect_uri"]
                    and challenge.rstrip(b"=").decode() == asked["code_challenge"]
                )
                self.answer({"access_token": "gho_x"} if good else {"error": "bad_verification_code"})

            def do_GET(self) -> None:
                assert self.path == "/api/user/emails"
                assert self.headers["authorization"] == "Bearer gho_x"
                self.answer(github.emails)

            def answer(self, body: Any) -> None:
                content = json.dumps(body).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def authorize(self, address: str) -> dict[str, str]:
        """What a person who agrees brings back."""
        query = {k: v[0] for k, v in parse_qs(urlsplit(address).query).items()}
        assert address.startswith(f"{self.url}/login/oauth/authorize?")
        assert query["scope"] == "user:email"
        self.codes["c0de"] = query
        return {"code": "c0de", "state": query["state"]}


@pytest.fixture
def github(platform: Platform, town: Any) -> Iterator[GitHub]:
    github = GitHub()
    platform.settings = platform.settings.model_copy(
        update={
            "github_client_id": "app",
            "github_client_secret": SecretStr("hush"),
            "github_url": github.url,
            "github_api_url": f"{github.url}/api",
        }
    )
    yield github
    github.server.shutdown()
    github.server.server_close()


def begin(client: httpx.Client, target: str = "/acme/models") -> str:
    answer = client.get(START, params={"next": target}, follow_redirects=False)
    assert answer.status_code == 303
    return answer.headers["location"]


def back(client: httpx.Client, **brought: str) -> httpx.Response:
    return client.get(BACK, params=brought, follow_redirects=False, headers={"Accept": "text/html"})


def test_a_known_person_comes_in_with_a_fresh_session(
    client: httpx.Client, github: GitHub, platform: Platform
) -> None:
    assert "Sign in with GitHub" in client.get("/sign-in", headers={"Accept": "text/html"}).text
    answer = back(client, **github.authorize(begin(client)))
    assert (answer.status_code, answer.headers["location"]) == (303, "/acme/models")
    first = answer.cookies[sessions.COOKIE]
    assert client.get("/account", headers={"Accept": "application/json"}).json()["email"] == "max@example.com"
    again = back(client, **github.authorize(begin(client)))
    assert again.cookies[sessions.COOKIE] != first
    with platform.database.read() as session:
        assert sessions.find_session(session, first) is None, "the session the browser had has ended"
    assert "hush" not in repr(platform.settings)


def test_answers_that_were_not_asked_for_open_nothing(client: httpx.Client, github: GitHub) -> None:
    brought = github.authorize(begin(client))
    assert back(client, **{**brought, "state": "other"}).status_code == 403
    assert back(client, **brought).status_code == 403, "the cookie is gone after one answer"
    brought = github.authorize(begin(client))
    github.codes["c0de"]["code_challenge"] = "of somebody else"
    refused = back(client, **brought)
    assert (refused.status_code, "did not confirm" in refused.text) == (401, True)
    stolen = github.authorize(begin(client))
    client.cookies.clear()
    assert back(client, **stolen).status_code == 403
    begin(client)
    assert "cancelled at GitHub" in back(client, error="access_denied", state="x").text
    assert sessions.COOKIE not in client.cookies


@pytest.mark.parametrize(
    ("emails", "status"),
    [
        ([{"email": "max@example.com", "primary": True, "verified": False}], 401),
        ([{"email": "stranger@example.com", "primary": True, "verified": True}], 403),
        ([], 401),
    ],
)
def test_only_verified_addresses_of_people_here_count(
    client: httpx.Client, github: GitHub, emails: Any, status: int
) -> None:
    github.emails = emails
    answer = back(client, **github.authorize(begin(client)))
    assert answer.status_code == status
    assert sessions.COOKIE not in answer.cookies


def test_a_silent_github_and_foreign_targets(client: httpx.Client, github: GitHub) -> None:
    answer = back(client, **github.authorize(begin(client, "https://evil.example/")))
    assert answer.headers["location"] == "/"
    address = begin(client)
    brought = github.authorize(address)
    github.server.shutdown()
    github.server.server_close()
    assert back(client, **brought).status_code == 503

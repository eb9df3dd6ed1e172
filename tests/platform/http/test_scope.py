"""Who asks, and for which workspace: every code of the API."""

from __future__ import annotations

from datetime import timedelta

import httpx
import pytest
from sqlalchemy import update

from osmosis_platform.accounts.models import AccessToken
from osmosis_platform.accounts.tokens import hash_token
from osmosis_platform.context import Platform
from osmosis_platform.db.types import utc_now

LIST = "/api/cli/environment-secrets"


@pytest.mark.parametrize(
    ("header", "code"),
    [
        (None, "AUTH_HEADER_MISSING"),
        ("Bearer ", "TOKEN_MISSING"),
        ("Basic abc", "TOKEN_MISSING"),
        ("Bearer nonsense", "TOKEN_INVALID"),
    ],
)
def test_bad_credentials(client: httpx.Client, header: str | None, code: str) -> None:
    answer = client.get("/api/cli/verify", headers={"Authorization": header} if header else {})
    assert (answer.status_code, answer.json()["code"]) == (401, code)


@pytest.mark.parametrize(
    ("column", "code"), [("expires_at", "TOKEN_EXPIRED"), ("revoked_at", "TOKEN_REVOKED")]
)
def test_ended_tokens(client: httpx.Client, platform: Platform, town, column: str, code: str) -> None:  # type: ignore[no-untyped-def]
    with platform.database.write() as session:
        session.execute(
            update(AccessToken)
            .where(AccessToken.token_hash == hash_token(town.ada.token))
            .values({column: utc_now() - timedelta(seconds=1)})
        )
    answer = client.get("/api/cli/verify", headers=town.ada.headers)
    assert (answer.status_code, answer.json()["code"]) == (401, code)


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({}, 400, "GIT_SCOPE_HEADER_REQUIRED"),
        ({"X-Osmosis-Git": " "}, 400, "GIT_SCOPE_HEADER_REQUIRED"),
        ({"X-Osmosis-Git": "just-a-name"}, 400, "GIT_SCOPE_HEADER_INVALID"),
        ({"X-Osmosis-Git": "acme/unknown"}, 403, "GIT_SCOPE_HEADER_ACCESS_DENIED"),
        ({"X-Osmosis-Workspace": "nowhere"}, 403, "WORKSPACE_SCOPE_HEADER_ACCESS_DENIED"),
        ({"X-Osmosis-Workspace": "other"}, 403, "WORKSPACE_SCOPE_HEADER_ACCESS_DENIED"),
        (
            {"X-Osmosis-Workspace": "acme", "X-Osmosis-Git": "acme/agents"},
            400,
            "WORKSPACE_SCOPE_HEADER_CONFLICT",
        ),
    ],
)
def test_bad_scopes(client: httpx.Client, town, headers: dict[str, str], status: int, code: str) -> None:  # type: ignore[no-untyped-def]
    answer = client.get(LIST, headers={**town.ada.headers, **headers})
    assert (answer.status_code, answer.json()["code"]) == (status, code)


@pytest.mark.parametrize(
    "headers",
    [{"X-Osmosis-Git": "acme/agents"}, {"X-Osmosis-Git": "ACME/Agents"}, {"X-Osmosis-Workspace": "acme"}],
)
def test_good_scopes(client: httpx.Client, town, headers: dict[str, str]) -> None:  # type: ignore[no-untyped-def]
    assert client.get(LIST, headers={**town.ada.headers, **headers}).status_code == 200


def test_stranger_is_refused_by_repository_too(client: httpx.Client, town) -> None:  # type: ignore[no-untyped-def]
    answer = client.get(LIST, headers={**town.eve.headers, "X-Osmosis-Git": "acme/agents"})
    assert answer.json()["code"] == "GIT_SCOPE_HEADER_ACCESS_DENIED"


def test_use_of_a_token_is_noted_once_a_minute(client: httpx.Client, platform: Platform, town) -> None:  # type: ignore[no-untyped-def]
    def last_used() -> object:
        with platform.database.read() as session:
            return session.get_one(AccessToken, token_id).last_used_at

    token_id = client.get("/api/cli/verify", headers=town.ada.headers).json()["token_id"]
    first = last_used()
    assert first is not None
    client.get("/api/cli/verify", headers=town.ada.headers)
    assert last_used() == first

"""People, passwords, browser sessions and tokens."""

from __future__ import annotations

from datetime import timedelta

import httpx
import pytest
from argon2 import PasswordHasher
from sqlalchemy import select

from osmosis_platform.accounts import service, sessions
from osmosis_platform.accounts.limits import TryLimit
from osmosis_platform.accounts.models import BrowserSession, User
from osmosis_platform.accounts.service import create_user, set_password
from osmosis_platform.accounts.tokens import create_token, list_tokens
from osmosis_platform.context import Platform
from osmosis_platform.db.types import utc_now
from osmosis_platform.errors import Conflict, Forbidden, InvalidInput, RateLimited, Unauthenticated

PASSWORD = "correct horse"


@pytest.fixture(autouse=True)
def quick_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """argon2id with the smallest parameters: the real ones are meant to be slow."""
    monkeypatch.setattr(service, "_hasher", PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))
    service._dummy_hash.cache_clear()


@pytest.fixture
def ada(platform: Platform) -> User:
    with platform.database.write() as session:
        return create_user(session, email=" Ada@Example.com", name="Ada", password=PASSWORD)


def sign_in(platform: Platform, email: str, password: str, **more: str) -> sessions.SignedIn:
    return sessions.sign_in(platform, email, password, address="10.0.0.1", **more)


def test_address_is_unique_in_any_case(platform: Platform, ada: User) -> None:
    assert ada.email == "ada@example.com"
    assert ada.password_hash is not None
    assert ada.password_hash.startswith("$argon2id$")
    with pytest.raises(Conflict), platform.database.write() as session:
        create_user(session, email="ADA@example.com", name="Other")


@pytest.mark.parametrize(
    ("email", "name", "password", "field"),
    [("no address", "A", None, "email"), ("a@b.c", " ", None, "name"), ("a@b.c", "A", "short", "password")],
)
def test_bad_people(platform: Platform, email: str, name: str, password: str | None, field: str) -> None:
    with pytest.raises(InvalidInput) as caught, platform.database.write() as session:
        create_user(session, email=email, name=name, password=password)
    assert caught.value.field == field


def test_sign_in_starts_a_fresh_session_and_ends_the_old_one(platform: Platform, ada: User) -> None:
    first = sign_in(platform, "ada@example.com", PASSWORD)
    second = sign_in(platform, "Ada@Example.com ", PASSWORD, old_cookie=first.cookie)
    assert first.cookie != second.cookie
    assert first.session.csrf_token != second.session.csrf_token
    with platform.database.read() as session:
        assert sessions.find_session(session, first.cookie) is None
        found = sessions.find_session(session, second.cookie)
        assert found is not None
        assert found.user.id == ada.id
        assert second.cookie not in {row.token_hash for row in session.scalars(select(BrowserSession))}
    sessions.check_csrf(found, found.csrf_token)
    with pytest.raises(Forbidden):
        sessions.check_csrf(found, first.session.csrf_token)


def test_wrong_password_and_unknown_address_look_the_same(platform: Platform, ada: User) -> None:
    messages = set()
    for email, password in (("ada@example.com", "wrong"), ("eve@example.com", PASSWORD)):
        with pytest.raises(Unauthenticated) as caught:
            sign_in(platform, email, password)
        messages.add(caught.value.message)
    assert len(messages) == 1


def test_person_without_password_cannot_sign_in(platform: Platform) -> None:
    with platform.database.write() as session:
        create_user(session, email="bot@example.com", name="Bot")
    with pytest.raises(Unauthenticated):
        sign_in(platform, "bot@example.com", "")


def test_expired_session_is_none_and_sign_out_ends_it(platform: Platform, ada: User) -> None:
    signed_in = sign_in(platform, "ada@example.com", PASSWORD)
    with platform.database.write() as session:
        sessions.sign_out(session, signed_in.cookie)
        assert sessions.find_session(session, signed_in.cookie) is None
        other = sessions.start_session(session, ada, days=1)
        other.session.expires_at = utc_now() - timedelta(seconds=1)
        session.flush()
        assert sessions.find_session(session, other.cookie) is None


def test_new_password_ends_other_sessions(platform: Platform, ada: User) -> None:
    old, kept = (sign_in(platform, "ada@example.com", PASSWORD) for _ in range(2))
    with platform.database.write() as session:
        set_password(session.get_one(User, ada.id), "battery staple")
        sessions.sign_out_everywhere(session, ada.id, keep=kept.session.id)
        assert sessions.find_session(session, old.cookie) is None
        assert sessions.find_session(session, kept.cookie) is not None
    sign_in(platform, "ada@example.com", "battery staple")
    with pytest.raises(Unauthenticated):
        sign_in(platform, "ada@example.com", PASSWORD)


def test_guessing_is_stopped_even_for_the_right_password(platform: Platform, ada: User) -> None:
    platform.limits = type(platform.limits)(sign_in=TryLimit(2, 60))
    for _ in range(2):
        with pytest.raises(Unauthenticated):
            sign_in(platform, "ada@example.com", "wrong guess")
    with pytest.raises(RateLimited):
        sign_in(platform, "ada@example.com", PASSWORD)


def test_limit_slides_forgets_and_is_per_key() -> None:
    now = [0.0]
    limit = TryLimit(2, 10, clock=lambda: now[0])
    limit.check("a")
    now[0] = 6.0
    limit.check("a", "b")
    with pytest.raises(RateLimited, match="4 seconds"):
        limit.check("a")
    limit.check("b")
    now[0] = 10.5
    limit.check("a")
    with pytest.raises(RateLimited):
        limit.check("a")
    limit.forget("a")
    limit.check("a")


def test_tokens_are_listed_while_they_work(platform: Platform, ada: User) -> None:
    with platform.database.write() as session:
        create_token(session, ada.id, name="old", expires_at=utc_now() - timedelta(days=1))
        token, text = create_token(session, ada.id, name="ci")
        assert [found.name for found in list_tokens(session, ada.id)] == ["ci"]
        assert text not in (token.token_hash, token.hint)
        assert text.endswith(token.hint.removeprefix("…"))


def test_verify_and_logout(client: httpx.Client, town) -> None:  # type: ignore[no-untyped-def]
    headers = {**town.max.headers, "X-Osmosis-Git": "Acme/agents"}
    body = client.get("/api/cli/verify", headers=headers).json()
    assert body["user"] == {"id": town.max.user.id, "email": "max@example.com", "name": "Max"}
    assert body["workspace"] == {"id": town.acme.id, "name": "acme", "role": "member"}
    assert body["expires_at"].startswith("2999-")
    unknown = client.get("/api/cli/verify", headers={**town.max.headers, "X-Osmosis-Git": "no/where"})
    assert (unknown.status_code, unknown.json()["workspace"]) == (200, None)
    foreign = client.delete(f"/api/cli/tokens/{body['token_id']}", headers=town.eve.headers)
    assert foreign.status_code == 404
    assert client.delete(f"/api/cli/tokens/{body['token_id']}", headers=town.max.headers).status_code == 204
    again = client.delete(f"/api/cli/tokens/{body['token_id']}", headers=town.max.headers)
    assert (again.status_code, again.json()["code"]) == (401, "TOKEN_REVOKED")


def test_trying_tokens_is_stopped_but_right_ones_pass(
    client: httpx.Client,
    platform: Platform,
    town,  # type: ignore[no-untyped-def]
) -> None:
    for _ in range(299):
        platform.limits.token_guess.check("address:testclient")

    def ask(token: str, path: str = "/api/cli/verify") -> tuple[int, str]:
        answer = client.get(path, headers={"Authorization": f"Bearer {token}"})
        body = answer.json()
        return answer.status_code, body["error"]["code"] if path.startswith("/v1") else body["code"]

    assert ask("osm_wrong") == (401, "TOKEN_INVALID")
    assert ask("osm_wrong") == (429, "RATE_LIMITED")
    assert ask("osk_wrong", "/v1/models") == (429, "rate_limit_exceeded")
    git = client.get("/git/acme/agents.git/info/refs", auth=("x", "osm_wrong"))
    assert (git.status_code, git.json()["code"]) == (429, "RATE_LIMITED")
    assert client.get("/api/cli/verify", headers=town.max.headers).status_code == 200
    assert client.get("/api/cli/verify").status_code == 401, "a request without any token tries none"

"""API keys and personal tokens: made on a page, shown once, ended there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import select

from osmosis_platform.audit.models import AuditEvent
from osmosis_platform.context import Platform

KEYS, TOKENS = "/acme/settings/keys", "/account/tokens"


def actions(platform: Platform) -> list[tuple[str, str]]:
    with platform.database.read() as session:
        query = select(AuditEvent).order_by(AuditEvent.created_at)
        return [(event.action, event.target) for event in session.scalars(query)]


def test_an_api_key_works_until_it_is_revoked(
    browser: Callable[[str], Any], client: Any, platform: Platform
) -> None:
    amy = browser("amy")
    answer = amy.post(KEYS, name=" nightly ")
    created = answer.json()["created"]
    assert (answer.status_code, created["name"]) == (201, "nightly")
    use = {"Authorization": f"Bearer {created['key']}"}
    assert amy.json(KEYS)["keys"][0]["last_used_at"] is None
    assert client.get("/v1/models", headers=use).status_code == 200
    listed = amy.json(KEYS)["keys"]
    assert [(key["name"], key["creator_name"]) for key in listed] == [("nightly", "Amy")]
    assert listed[0]["last_used_at"] is not None
    assert created["key"] not in amy.get(KEYS).text
    assert amy.post(f"{KEYS}/{created['id']}/revoke").headers["location"] == KEYS
    assert client.get("/v1/models", headers=use).status_code == 401
    assert amy.json(KEYS)["keys"] == []
    assert actions(platform) == [("api_key.create", "nightly"), ("api_key.revoke", "nightly")]


def test_the_page_of_a_new_key_shows_it_and_may_not_be_kept(browser: Callable[[str], Any]) -> None:
    answer = browser("ada").post(KEYS, html=True, name="<b>ci</b>")
    assert 'id="shown-once" tabindex="0">osk_' in answer.text
    assert "<b>ci" not in answer.text
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("name", ["", "   ", "n" * 101])
def test_a_name_that_cannot_be_is_refused_on_the_page(
    browser: Callable[[str], Any], platform: Platform, name: str
) -> None:
    ada = browser("ada")
    for path in (KEYS, TOKENS):
        answer = ada.post(path, html=True, name=name)
        assert answer.status_code == 400
        assert "name of 1 to 100 characters" in answer.text.split('role="alert"')[1]
    assert actions(platform) == []


def test_members_see_keys_and_have_no_forms_for_them(browser: Callable[[str], Any]) -> None:
    key = browser("ada").post(KEYS, name="ci").json()["created"]
    member = browser("max")
    assert "ci" in member.get(KEYS).text
    assert member.forms(KEYS) == set()
    assert member.post(KEYS, name="mine").status_code == 403
    assert member.post(f"{KEYS}/{key['id']}/revoke").status_code == 403
    assert browser("amy").forms(KEYS) == {KEYS, f"{KEYS}/{key['id']}/revoke"}


def test_a_key_of_another_workspace_cannot_be_revoked(browser: Callable[[str], Any]) -> None:
    key = browser("ada").post(KEYS, name="ci").json()["created"]
    assert browser("eve").post(f"/other/settings/keys/{key['id']}/revoke").status_code == 404
    assert len(browser("ada").json(KEYS)["keys"]) == 1


def test_a_personal_token_works_until_it_is_revoked(
    browser: Callable[[str], Any], client: Any, platform: Platform
) -> None:
    member = browser("max")
    created = member.post(TOKENS, name="ci", days="30").json()["created"]
    use = {"Authorization": f"Bearer {created['token']}"}
    assert client.get("/api/cli/verify", headers=use).json()["user"]["email"] == "max@example.com"
    listed = {token["name"]: token for token in member.json(TOKENS)["tokens"]}
    assert listed["ci"]["expires_at"] > listed["ci"]["created_at"]
    assert listed["ci"]["last_used_at"] is not None
    assert created["token"] not in member.get(TOKENS).text
    assert browser("ada").post(f"{TOKENS}/{created['id']}/revoke").status_code == 404
    assert member.post(f"{TOKENS}/{created['id']}/revoke").status_code == 303
    assert client.get("/api/cli/verify", headers=use).status_code == 401
    assert actions(platform) == [("token.create", "ci"), ("token.revoke", "ci")]


@pytest.mark.parametrize(
    ("days", "status"), [("", 201), ("1", 201), ("0", 400), ("-1", 400), ("9" * 30, 400)]
)
def test_the_lifetime_of_a_token(browser: Callable[[str], Any], days: str, status: int) -> None:
    assert browser("max").post(TOKENS, name="ci", days=days).status_code == status


def test_somebody_without_workspace_has_tokens(browser: Callable[[str], Any], platform: Platform) -> None:
    lone = browser("eve")
    with platform.database.write() as session:
        session.connection().exec_driver_sql("DELETE FROM memberships")
    assert lone.post(TOKENS, html=True, name="ci").status_code == 201


def test_settings_are_one_room_with_pages(browser: Callable[[str], Any]) -> None:
    page = browser("max").get(KEYS).text
    for link in (f'{KEYS}" aria-current="page">API keys', '/acme/settings" aria-current="page">Settings', '/acme/settings">General'):  # fmt: skip
        assert f'<a href="{link}</a>' in page

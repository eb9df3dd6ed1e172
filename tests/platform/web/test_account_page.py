"""A person's account: a new password ends other sessions, browsers are signed out, workspaces are made."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import select

from osmosis_platform.accounts import sessions
from osmosis_platform.accounts.models import BrowserSession, User
from osmosis_platform.accounts.service import check_password, set_password
from osmosis_platform.context import Platform
from osmosis_platform.errors import Unauthenticated
from osmosis_platform.repositories.models import Repository
from osmosis_platform.workspaces.models import Membership

OLD, NEW = "correct horse battery", "a better password"


@pytest.fixture
def max(browser: Callable[[str], Any], platform: Platform, town: Any) -> Any:
    with platform.database.write() as session:
        set_password(session.get_one(User, town.max.user.id), OLD)
    return browser("max")


def test_a_new_password_ends_other_sessions(
    max: Any, browser: Callable[[str], Any], platform: Platform
) -> None:
    other, cookie = browser("max"), max.client.cookies[sessions.COOKIE]
    for form, says in (
        ({"current": "wrong", "new": NEW, "again": NEW}, "current password is wrong"),
        ({"current": OLD, "new": NEW, "again": "differs"}, "differ"),
        ({"current": OLD, "new": "short", "again": "short"}, "at least 8"),
    ):
        refused = max.post("/account/password", html=True, **form)
        assert refused.status_code == 400
        assert says in refused.text.split('role="alert"')[1]
    assert other.get("/account").url.path == "/account"
    changed = max.post("/account/password", current=OLD, new=NEW, again=NEW)
    assert (changed.status_code, changed.headers["location"]) == (303, "/account?changed=1")
    fresh = changed.cookies[sessions.COOKIE]
    assert fresh != cookie, "this browser goes on with a fresh session"
    max.client.cookies.clear()
    max.client.cookies.set(sessions.COOKIE, fresh)
    assert max.get("/account").url.path == "/account"
    assert other.get("/account").url.path == "/sign-in"
    with platform.database.read() as session:
        assert check_password(session, "max@example.com", NEW)
        with pytest.raises(Unauthenticated):
            check_password(session, "max@example.com", OLD)
    assert NEW not in max.get("/account").text


def test_guessing_the_current_password_is_limited(max: Any) -> None:
    wrong = {"current": "guess", "new": NEW, "again": NEW}
    assert [max.post("/account/password", **wrong).status_code for _ in range(11)] == [400] * 10 + [429]


def test_browsers_are_signed_out(max: Any, browser: Callable[[str], Any], platform: Platform) -> None:
    second, third, ada = browser("max"), browser("max"), browser("ada")
    listed = max.json("/account")["sessions"]
    assert [item["current"] for item in listed].count(True) == 1
    assert len(listed) == 3
    with platform.database.read() as session:
        foreign = session.scalars(
            select(BrowserSession.id).join(User).where(User.email == "ada@example.com")
        ).one()
    assert max.post(f"/account/sessions/{foreign}/end").status_code == 404
    newest = next(item for item in listed if not item["current"])
    assert max.post(f"/account/sessions/{newest['id']}/end").status_code == 303
    assert len(max.json("/account")["sessions"]) == 2
    assert max.post("/account/sessions/end").status_code == 303
    assert [who.get("/account").url.path for who in (max, second, third, ada)] == [
        "/account", "/sign-in", "/sign-in", "/account",
    ]  # fmt: skip


def test_a_person_makes_a_workspace_with_its_repository(
    browser: Callable[[str], Any], platform: Platform, town: Any
) -> None:
    eve = browser("eve")
    assert eve.post("/new", name="acme").status_code == 409
    assert "small letters" in eve.post("/new", html=True, name="A B").text
    made = eve.post("/new", name="rockets")
    assert (made.status_code, made.headers["location"]) == (303, "/rockets/git")
    page = eve.get("/rockets/git").text
    assert "git clone" in page
    assert "/git/rockets/agents.git" in page
    assert "pipx" not in page
    menu = page.split('<details class="team">')[1].split("</details>")[0]
    assert re.findall(r'href="([^"]+)"', menu) == ["/other", "/new"]
    with platform.database.read() as session:
        repository = session.scalars(select(Repository).where(Repository.full_name == "rockets/agents")).one()
        member = session.scalars(
            select(Membership).where(Membership.workspace_id == repository.workspace_id)
        ).one()
    assert (member.user_id, member.role) == (town.eve.user.id, "owner")
    assert "multiply-local-openai" in platform.git.list_folders("rockets/agents", "main", "rollouts")


def test_somebody_in_no_workspace_is_led_to_making_one(
    browser: Callable[[str], Any], platform: Platform, town: Any
) -> None:
    with platform.database.write() as session:
        session.delete(
            session.scalars(select(Membership).where(Membership.user_id == town.max.user.id)).one()
        )
    page = browser("max").get("/")
    assert page.url.path == "/new"
    assert "Welcome to Osmosis" in page.text


def test_another_name(max: Any, platform: Platform) -> None:
    assert max.post("/account/name", name=" Maxine ").status_code == 303
    assert max.json("/account")["name"] == "Maxine"
    assert max.post("/account/name", name=" ").status_code == 400

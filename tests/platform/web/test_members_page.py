"""Members are invited by a link, change roles, are removed and leave; an owner always stays."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select, update

from osmosis_platform.app import create_app
from osmosis_platform.audit.models import AuditEvent
from osmosis_platform.context import Platform
from osmosis_platform.db.types import utc_now
from osmosis_platform.workspaces.models import Invite

PAGE = "/acme/settings/members"
ACCOUNT = {"name": "Grace", "password": "correct horse battery"}


@pytest.fixture
def stranger(platform: Platform) -> Any:
    with TestClient(create_app(platform), raise_server_exceptions=False, follow_redirects=False) as client:
        yield client


def roles(page: Any) -> dict[str, str]:
    return {member["email"].split("@")[0]: member["role"] for member in page.json(PAGE)["members"]}


def link(browser: Callable[[str], Any], email: str = "", role: str = "member", who: str = "ada") -> str:
    """The token in the link of a new invitation."""
    answer = browser(who).post(f"{PAGE}/invites", email=email, role=role)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["created"]["link"].partition("/invite?token=")[2])


def audited(platform: Platform) -> list[str]:
    with platform.database.read() as session:
        found = session.scalars(select(AuditEvent).order_by(AuditEvent.created_at, AuditEvent.id))
        return [f"{event.action} {event.target}" for event in found]


def test_a_new_account_joins_by_a_link_and_is_signed_in(
    browser: Callable[[str], Any], stranger: Any, platform: Platform
) -> None:
    token = link(browser, "Grace@Example.com", "admin")
    assert token not in browser("ada").get(PAGE).text
    page = stranger.get(f"/invite?token={token}", headers={"Accept": "text/html"})
    assert "Ada invites grace@example.com" in page.text
    assert 'name="email"' not in page.text
    answer = stranger.post("/invite", data={"token": token, "email": "other@example.com", **ACCOUNT})
    assert (answer.status_code, answer.headers["location"]) == (303, "/acme")
    assert stranger.get("/acme?format=json").json()["workspace"] == "acme"
    assert roles(browser("ada"))["grace"] == "admin"
    assert sorted(audited(platform)) == [
        "invite.create grace@example.com",
        "member.join grace@example.com",
        "user.create grace@example.com",
    ]


def test_a_link_works_once(browser: Callable[[str], Any], stranger: Any) -> None:
    token = link(browser)
    form = {"token": token, "email": "grace@example.com", **ACCOUNT}
    assert stranger.post("/invite", data={**form, "email": ""}).status_code == 400
    assert stranger.post("/invite", data=form).status_code == 303
    stranger.cookies.clear()
    assert stranger.post("/invite", data={**form, "email": "b@example.com"}).status_code == 404
    assert stranger.get(f"/invite?token={token}").status_code == 404
    assert browser("ada").json(PAGE)["invites"] == []


def test_somebody_with_an_account_joins_with_it(browser: Callable[[str], Any]) -> None:
    token = link(browser, "eve@example.com")
    wrong = browser("max").get(f"/invite?token={token}")
    assert "You are a member already" in wrong.text
    eve = browser("eve")
    assert eve.post("/invite", token=token, csrf="guess").status_code == 403
    assert eve.post("/invite", token=token).headers["location"] == "/acme"
    assert roles(eve)["eve"] == "member"


def test_an_invitation_of_one_address_is_for_nobody_else(
    browser: Callable[[str], Any], stranger: Any
) -> None:
    token = link(browser, "grace@example.com")
    eve = browser("eve")
    assert "You are signed in as eve@example.com" in eve.get(f"/invite?token={token}").text
    answer = eve.post("/invite", html=True, token=token)
    assert (answer.status_code, "is for grace@example.com" in answer.text) == (403, True)
    known = link(browser, "eve@example.com")
    page = stranger.get(f"/invite?token={known}&format=json").json()
    assert page["email"] == "eve@example.com"
    assert stranger.post("/invite", data={"token": known, **ACCOUNT}).status_code == 409
    assert "set-cookie" not in stranger.post("/invite", data={"token": known, **ACCOUNT}).headers


def test_what_cannot_be_is_said_on_the_page(browser: Callable[[str], Any], stranger: Any) -> None:
    token = link(browser)
    form = {"token": token, "email": "grace@example.com", "name": "Grace", "password": "short"}
    answer = stranger.post("/invite", data=form, headers={"Accept": "text/html"})
    assert answer.status_code == 400
    assert "at least 8" in answer.text.split('role="alert"')[1]
    assert 'value="grace@example.com"' in answer.text
    assert "short" not in answer.text
    foreign = {"Origin": "http://evil.example"}
    assert stranger.post("/invite", data={**form, **ACCOUNT}, headers=foreign).status_code == 403
    amy = browser("amy")
    for email, role, status in (
        ("nobody", "member", 400),
        ("max@example.com", "member", 409),
        ("", "king", 400),
    ):
        refused = amy.post(f"{PAGE}/invites", html=True, email=email, role=role)
        assert refused.status_code == status
        assert 'role="alert"' in refused.text


def test_nobody_gives_more_than_they_have(browser: Callable[[str], Any], town: Any) -> None:
    amy, member, ada_id = browser("amy"), browser("max"), town.ada.user.id
    assert amy.post(f"{PAGE}/invites", role="owner").status_code == 403
    assert amy.post(f"{PAGE}/{ada_id}/role", role="member").status_code == 403
    assert amy.post(f"{PAGE}/{ada_id}/remove").status_code == 403
    assert member.post(f"{PAGE}/invites").status_code == 403
    assert member.post(f"{PAGE}/{town.amy.user.id}/remove").status_code == 403
    assert member.forms(PAGE) == {f"{PAGE}/{town.max.user.id}/remove"}
    assert not any(ada_id in action for action in amy.forms(PAGE))
    link(browser, "boss@example.com", "owner")
    assert amy.post(f"{PAGE}/invites", email="boss@example.com").status_code == 403
    assert member.json(PAGE)["invites"] == []


def test_links_end_when_withdrawn_replaced_old_or_their_maker_lost_the_role(
    browser: Callable[[str], Any], stranger: Any, platform: Platform, town: Any
) -> None:
    def works(token: str) -> bool:
        return bool(stranger.get(f"/invite?token={token}").status_code == 200)

    ada = browser("ada")
    first, second = link(browser, "g@example.com"), link(browser, "g@example.com", "admin")
    assert (works(first), works(second)) == (False, True)
    waiting = ada.json(PAGE)["invites"]
    assert [(invite["email"], invite["role"]) for invite in waiting] == [("g@example.com", "admin")]
    assert ada.post(f"{PAGE}/invites/{waiting[0]['id']}/withdraw").status_code == 303
    assert not works(second)
    own, old = link(browser, who="amy"), link(browser)
    assert works(own)
    ada.post(f"{PAGE}/{town.amy.user.id}/role", role="member")
    assert not works(own)
    assert works(old)
    with platform.database.write() as session:
        session.execute(update(Invite).values(expires_at=utc_now() - timedelta(seconds=1)))
    assert not works(old)


def test_roles_change_and_people_leave_but_an_owner_stays(
    browser: Callable[[str], Any], platform: Platform, town: Any
) -> None:
    ada, member = browser("ada"), browser("max")
    ada_id, max_id, amy_id = town.ada.user.id, town.max.user.id, town.amy.user.id
    for answer in (ada.post(f"{PAGE}/{ada_id}/remove", html=True), ada.post(f"{PAGE}/{ada_id}/role", html=True, role="admin")):  # fmt: skip
        assert answer.status_code == 409
        assert "needs an owner" in answer.text.split('role="alert"')[1]
    assert ada.post(f"{PAGE}/{max_id}/role", role="owner").headers["location"] == PAGE
    assert member.post(f"{PAGE}/{amy_id}/remove").status_code == 303
    assert ada.post(f"{PAGE}/{ada_id}/remove").headers["location"] == "/"
    assert ada.get(PAGE).status_code == 404
    assert roles(member) == {"max": "owner"}
    assert sorted(audited(platform)) == [
        "member.remove ada@example.com",
        "member.remove amy@example.com",
        "member.role max@example.com",
    ]

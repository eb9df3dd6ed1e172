"""The audit log: newest first, in pages, chosen by action and person, for admins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from osmosis_platform.audit.service import record
from osmosis_platform.context import Platform

PAGE = "/acme/settings/audit"


def test_events_are_shown_newest_first_and_chosen_by_action_and_person(
    browser: Callable[[str], Any], platform: Platform, town: Any
) -> None:
    ada, amy = browser("ada"), browser("amy")
    assert "Nothing was noted yet" in ada.get(PAGE).text
    ada.post("/acme/settings/keys", name="<b>ci</b>")
    amy.post("/acme/settings/keys", name="nightly")
    amy.post("/acme/settings/members/invites", email="g@example.com", role="admin")
    browser("eve").post("/other/settings/keys", name="theirs")
    with platform.database.write() as session:
        record(session, "member.add", "max@example.com", user_id=None, workspace_id=town.acme.id)

    def shown(query: str = "") -> list[str]:
        return [event["target"] for event in ada.json(f"{PAGE}?{query}")["events"]]

    assert shown() == ["max@example.com", "g@example.com", "nightly", "<b>ci</b>"]
    assert shown("action=api_key.create") == ["nightly", "<b>ci</b>"]
    assert shown(f"action=api_key.create&person={town.ada.user.id}") == ["<b>ci</b>"]
    assert shown("person=machine") == ["max@example.com"]
    assert shown("person=nobody") == []
    data = ada.json(PAGE)
    assert data["actions"] == ["api_key.create", "invite.create", "member.add"]
    assert [one["name"] for one in data["people"]] == [
        "Ada (ada@example.com)", "Amy (amy@example.com)", "command at the machine",
    ]  # fmt: skip
    assert data["events"][1]["details"] == {"role": "admin"}
    page = ada.get(f"{PAGE}?action=invite.create").text
    assert '<option selected="' not in page
    assert "<option selected>invite.create</option>" in page
    assert "role: admin" in page
    assert "<b>ci" not in ada.get(PAGE).text
    assert "No event matches" in ada.get(f"{PAGE}?person=nobody").text


def test_the_log_comes_in_pages_that_keep_the_choice(
    browser: Callable[[str], Any], platform: Platform, town: Any
) -> None:
    with platform.database.write() as session:
        for number in range(120):
            who = {"user_id": town.ada.user.id, "workspace_id": town.acme.id}
            record(session, "secret.set" if number % 2 else "secret.delete", f"KEY_{number}", **who)
    ada = browser("ada")
    seen = [
        event["target"] for offset in (0, 50, 100) for event in ada.json(f"{PAGE}?offset={offset}")["events"]
    ]
    assert sorted(seen) == sorted(f"KEY_{number}" for number in range(120))
    page = ada.get(f"{PAGE}?action=secret.set")
    assert f'href="{PAGE}?action=secret.set&amp;offset=50"' in page.text
    assert "There is nothing this far back" in ada.get(f"{PAGE}?offset=500").text


def test_members_have_no_way_to_the_log(browser: Callable[[str], Any]) -> None:
    member = browser("max")
    assert member.get(PAGE).status_code == 403
    assert PAGE not in member.get("/acme/settings/members").text
    assert PAGE in browser("amy").get("/acme/settings/members").text

"""Secrets are set, replaced and deleted on their page, which shows everything but values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import select

from osmosis_platform.context import Platform
from osmosis_platform.secrets.models import Secret
from osmosis_platform.secrets.service import mark_used, resolve, resolve_names

PAGE = "/acme/secrets"
VALUE = "sk-never shown\nsecond line"


def test_secrets_are_set_used_replaced_and_deleted(
    browser: Callable[[str], Any], platform: Platform, town: Any
) -> None:
    amy, max, eve = browser("amy"), browser("max"), browser("eve")
    sent = VALUE.replace("\n", "\r\n")  # as browsers send what is typed into a box
    assert amy.post(PAGE, name="API_KEY", scope="workspace", value="shared").status_code == 303
    assert max.post(PAGE, name=" API_KEY ", scope="personal", value=sent).status_code == 303
    with platform.database.write() as session:
        names = ["API_KEY"]
        found = resolve(session, platform.keys, town.acme.id, town.max.user.id, names)
        assert found == {"API_KEY": (VALUE, "user_override")}
        before = {s.id: s.updated_at for s in session.scalars(select(Secret))}
        labels = resolve_names(session, town.acme.id, town.max.user.id, names)
        mark_used(session, town.acme.id, town.max.user.id, labels)
        session.flush()
        assert {s.id: s.updated_at for s in session.scalars(select(Secret))} == before

    rows = {row["scope"]: row for row in max.json(PAGE)["secrets"]}
    own, shared = rows["personal"], rows["workspace"]
    assert (own["overrides"], own["used_instead"], own["may_change"]) == (True, False, True)
    assert (shared["overrides"], shared["used_instead"], shared["may_change"]) == (False, True, False)
    assert (own["last_used_at"] is None, shared["last_used_at"]) == (False, None)
    assert (shared["creator_name"], shared["updater_name"]) == ("Amy", "Amy")
    page = max.get(f"{PAGE}?name=API_KEY").text
    assert "never shown\n" not in page
    assert "shared" not in page
    assert max.forms(PAGE) == {PAGE, f"{PAGE}/{own['id']}/delete"}
    assert [row["scope"] for row in amy.json(PAGE)["secrets"]] == ["workspace"]

    for path in (f"{PAGE}/{shared['id']}/delete", PAGE):
        refused = max.post(path, name="API_KEY", scope="workspace", value="mine now")
        assert (refused.status_code, refused.json()["code"]) == (403, "FORBIDDEN")
    assert amy.post(f"{PAGE}/{own['id']}/delete").status_code == 404  # somebody else's own
    assert eve.post(f"{PAGE}/{shared['id']}/delete").status_code == 404
    assert browser("ada").post(PAGE, name="API_KEY", scope="workspace", value="new").status_code == 303
    (changed,) = amy.json(PAGE)["secrets"]
    assert (changed["id"], changed["creator_name"], changed["updater_name"]) == (shared["id"], "Amy", "Ada")
    assert max.post(f"{PAGE}/{own['id']}/delete").status_code == 303
    assert [row["used_instead"] for row in max.json(PAGE)["secrets"]] == [False]


def test_a_refused_secret_is_told_without_its_value(
    browser: Callable[[str], Any], platform: Platform, town: Any
) -> None:
    max = browser("max")
    refused = max.post(PAGE, html=True, name="lower case", value="sk-typed")
    assert refused.status_code == 400
    assert "capital letters" in refused.text
    assert 'value="lower case"' in refused.text
    assert "sk-typed" not in refused.text
    assert max.client.post(PAGE, data={"name": "KEY", "value": "v"}).status_code == 403
    with platform.database.read() as session:
        assert list(session.scalars(select(Secret))) == []

"""Environment secrets: scopes, roles, override order, encryption at rest."""

from __future__ import annotations

import logging
from typing import Any

import httpx
import pytest
from sqlalchemy import select

from osmosis_platform.context import Platform
from osmosis_platform.errors import NotFound
from osmosis_platform.secrets.keys import SecretUnreadable
from osmosis_platform.secrets.models import Secret
from osmosis_platform.secrets.rotation import rotate
from osmosis_platform.secrets.service import open_value, resolve, resolve_names

URL = "/api/cli/environment-secrets"


def put(
    client: httpx.Client, headers: dict[str, str], name: str, value: str, scope: str = "user"
) -> httpx.Response:
    return client.post(URL, json={"name": name, "value": value, "scope": scope}, headers=headers)


def delete(client: httpx.Client, headers: dict[str, str], name: str, scope: str) -> httpx.Response:
    return client.request("DELETE", URL, json={"name": name, "scope": scope}, headers=headers)


def names(client: httpx.Client, headers: dict[str, str], scope: str = "all") -> list[tuple[str, str]]:
    body = client.get(f"{URL}?scope={scope}", headers=headers).json()
    return sorted((item["name"], item["scope"]) for item in body["environment_secrets"])


def test_set_and_list(client: httpx.Client, town) -> None:  # type: ignore[no-untyped-def]
    made = put(client, town.amy.scoped(), "OPENAI_API_KEY", "sk-1", "workspace").json()
    assert made["platform_url"] == "http://127.0.0.1:8400/acme/secrets"
    changed = put(client, town.ada.scoped(), "OPENAI_API_KEY", "sk-2", "workspace").json()
    assert (changed["id"], changed["creator_name"], changed["updater_name"]) == (made["id"], "Amy", "Ada")
    put(client, town.max.scoped(), "MINE", "m")
    put(client, town.ada.scoped(), "HERS", "h")
    assert names(client, town.max.scoped()) == [("MINE", "user"), ("OPENAI_API_KEY", "workspace")]
    assert names(client, town.max.scoped(), "user") == [("MINE", "user")]
    assert names(client, town.max.scoped(), "workspace") == [("OPENAI_API_KEY", "workspace")]
    page = client.get(f"{URL}?limit=1", headers=town.max.scoped()).json()
    assert (page["total_count"], page["next_offset"], page["has_more"]) == (2, 1, True)


def test_members_do_not_change_workspace_secrets(client: httpx.Client, town) -> None:  # type: ignore[no-untyped-def]
    put(client, town.ada.scoped(), "KEY", "v", "workspace")
    for answer in (
        put(client, town.max.scoped(), "KEY", "x", "workspace"),
        delete(client, town.max.scoped(), "KEY", "workspace"),
    ):
        assert (answer.status_code, answer.json()["code"]) == (403, "FORBIDDEN")
        assert "admin" in answer.json()["error"]
    assert delete(client, town.amy.scoped(), "KEY", "workspace").status_code == 204
    assert names(client, town.ada.scoped()) == []


def test_delete_is_per_scope_and_owner(client: httpx.Client, town) -> None:  # type: ignore[no-untyped-def]
    put(client, town.ada.scoped(), "KEY", "v", "user")
    answer = delete(client, town.max.scoped(), "KEY", "user")
    assert (answer.status_code, answer.json()["code"]) == (404, "SECRET_NOT_FOUND")
    assert delete(client, town.ada.scoped(), "KEY", "workspace").status_code == 404
    assert delete(client, town.ada.scoped(), "KEY", "user").status_code == 204


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lower", "v"),
        ("1A", "v"),
        ("A" * 256, "v"),
        ("A-B", "v"),
        ("A\n", "v"),
        ("A", ""),
        ("A", "a\0b"),
        ("A", "x" * 65537),
    ],
)
def test_bad_secrets(client: httpx.Client, town, name: str, value: str) -> None:  # type: ignore[no-untyped-def]
    assert put(client, town.ada.scoped(), name, value).status_code == 400


def test_personal_value_wins(client: httpx.Client, platform: Platform, town) -> None:  # type: ignore[no-untyped-def]
    put(client, town.ada.scoped(), "BOTH", "of all", "workspace")
    put(client, town.ada.scoped(), "SHARED", "shared", "workspace")
    put(client, town.max.scoped(), "BOTH", "of max")
    put(client, town.max.scoped(), "MINE", "mine")
    with platform.database.read() as session:
        asked = ["BOTH", "SHARED", "MINE"]
        assert resolve(session, platform.keys, town.acme.id, town.max.user.id, asked) == {
            "BOTH": ("of max", "user_override"),
            "SHARED": ("shared", "workspace"),
            "MINE": ("mine", "user"),
        }
        found = resolve(session, platform.keys, town.acme.id, town.ada.user.id, ["BOTH"])
        assert found == {"BOTH": ("of all", "workspace")}
        given = resolve_names(
            session, town.acme.id, town.ada.user.id, ["BOTH", "NEW"], provided={"BOTH", "NEW"}
        )
        assert given == {"BOTH": "user_override", "NEW": "user"}
        with pytest.raises(NotFound) as caught:
            resolve_names(
                session, town.acme.id, town.ada.user.id, ["MINE", "SHARED", "NONE"], platform_url="http://x/s"
            )
        assert caught.value.message.endswith("Secret(s) not found: MINE, NONE")
        assert caught.value.body()["platform_url"] == "http://x/s"


def test_ciphertext_moved_or_put_back_does_not_open(client: httpx.Client, platform: Platform, town) -> None:  # type: ignore[no-untyped-def]
    for name in ("ONE", "TWO"):
        put(client, town.ada.scoped(), name, f"value of {name}", "workspace")
    put(client, town.ada.scoped(), "ONE", "personal", "user")
    with platform.database.read() as session:
        rows = {(row.name, row.scope): row for row in session.scalars(select(Secret))}
    one, two, personal = rows["ONE", "workspace"], rows["TWO", "workspace"], rows["ONE", "user"]
    assert open_value(one, platform.keys) == b"value of ONE"
    for target in (two, personal):
        target.nonce, target.ciphertext = one.nonce, one.ciphertext
        with pytest.raises(SecretUnreadable):
            open_value(target, platform.keys)
    one.version += 1
    with pytest.raises(SecretUnreadable):
        open_value(one, platform.keys)


def test_rotation_reencrypts_everything(client: httpx.Client, platform: Platform, town) -> None:  # type: ignore[no-untyped-def]
    made = put(client, town.ada.scoped(), "KEY", "value", "workspace").json()
    (old,) = platform.keys.ids
    done = rotate(platform.database, platform.keys)
    assert (done.secrets, done.dropped) == (1, [old])
    assert platform.keys.ids == [done.key_id]
    with platform.database.read() as session:
        row = session.scalars(select(Secret)).one()
        assert row.key_id == done.key_id
        assert row.updated_at.isoformat() == made["updated_at"]
        assert resolve(session, platform.keys, town.acme.id, town.ada.user.id, ["KEY"])["KEY"][0] == "value"


@pytest.mark.usefixtures("only_sqlite")
def test_no_secret_value_is_readable_anywhere(
    client: httpx.Client,
    platform: Platform,
    town,
    caplog: pytest.LogCaptureFixture,  # type: ignore[no-untyped-def]
) -> None:
    canary = "canary-7f3a-value"
    answers: list[httpx.Response] = []
    bad: list[dict[str, Any]] = [
        {"name": "bad name", "value": canary, "scope": "user"},
        {"name": "GOOD", "value": canary, "scope": canary},
        {"name": "GOOD", "value": canary + "\0", "scope": "user"},
        {"name": "GOOD", "value": [canary], "scope": "user"},
    ]
    with caplog.at_level(logging.DEBUG):
        answers += [client.post(URL, json=body, headers=town.ada.scoped()) for body in bad]
        answers += [put(client, town.max.scoped(), "GOOD", canary, "workspace")]
        assert all(answer.status_code in (400, 403) for answer in answers)
        answers += [put(client, town.ada.scoped(), "GOOD", canary, scope) for scope in ("workspace", "user")]
        answers += [client.get(URL, headers=town.ada.scoped())]
        answers += [delete(client, town.ada.scoped(), "GOOD", "user")]
        assert all(answer.is_success for answer in answers[-4:])
    assert all(canary not in answer.text and canary not in str(answer.headers) for answer in answers)
    assert canary not in caplog.text
    files = [path for path in platform.settings.data_dir.rglob("*") if path.is_file()]
    assert any(path.name.startswith("osmosis.sqlite3") for path in files)
    assert all(canary.encode() not in path.read_bytes() for path in files)
    with platform.database.read() as session:
        assert resolve(session, platform.keys, town.acme.id, town.ada.user.id, ["GOOD"])["GOOD"] == (
            canary,
            "workspace",
        )

"""Sign-in of the CLI through the browser."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from sqlalchemy import update

from osmosis_platform.accounts import device
from osmosis_platform.accounts.models import DeviceLogin
from osmosis_platform.context import Platform
from osmosis_platform.db.types import utc_now
from osmosis_platform.errors import NotFound


@pytest.fixture
def started(client: httpx.Client) -> dict[str, Any]:
    answer = client.post("/api/cli/device/authorize", json={"deviceName": "ada's  laptop"})
    assert answer.status_code == 200
    body: dict[str, Any] = answer.json()
    return body


def poll(client: httpx.Client, started: dict[str, Any]) -> httpx.Response:
    return client.post("/api/cli/device/token", json={"device_code": started["device_code"]})


def age(platform: Platform, **values: datetime | None) -> None:
    with platform.database.write() as session:
        session.execute(update(DeviceLogin).values(values))


def test_start_says_where_to_go(started: dict[str, Any]) -> None:
    assert started["verification_uri"] == "http://127.0.0.1:8400/device"
    assert started["verification_uri_complete"] == f"http://127.0.0.1:8400/device?code={started['user_code']}"
    assert (started["expires_in"], started["interval"]) == (900, 2)
    assert len(started["user_code"]) == 9


def test_pending_then_approved_then_used(
    client: httpx.Client,
    platform: Platform,
    town,
    started: dict[str, Any],  # type: ignore[no-untyped-def]
) -> None:
    first = poll(client, started)
    assert (first.status_code, first.json()["error"]) == (400, "authorization_pending")
    assert poll(client, started).json()["error"] == "slow_down"
    age(platform, last_polled_at=utc_now() - timedelta(seconds=2))
    assert poll(client, started).json()["error"] == "authorization_pending"
    with platform.database.write() as session:
        typed = started["user_code"].lower().replace("-", " ")
        assert device.decide(session, town.ada.user, typed, approve=True).device_name == "ada's laptop"
    body = poll(client, started).json()
    assert body["user"]["email"] == "ada@example.com"
    expires = datetime.fromisoformat(body["expires_at"])
    assert timedelta(days=89) < expires - utc_now() <= timedelta(days=90)
    me = client.get("/api/cli/verify", headers={"Authorization": f"Bearer {body['token']}"}).json()
    assert (me["token_id"], me["user"]) == (body["token_id"], body["user"])
    assert poll(client, started).json()["error"] == "expired_token"


def test_denied(client: httpx.Client, platform: Platform, town, started: dict[str, Any]) -> None:  # type: ignore[no-untyped-def]
    with platform.database.write() as session:
        device.decide(session, town.ada.user, started["user_code"], approve=False)
    assert poll(client, started).json()["error"] == "access_denied"
    with pytest.raises(NotFound), platform.database.write() as session:
        device.decide(session, town.ada.user, started["user_code"], approve=True)


def test_expired_code_is_neither_polled_nor_approved(
    client: httpx.Client,
    platform: Platform,
    town,
    started: dict[str, Any],  # type: ignore[no-untyped-def]
) -> None:
    age(platform, expires_at=utc_now() - timedelta(seconds=1))
    assert poll(client, started).json()["error"] == "expired_token"
    with pytest.raises(NotFound), platform.database.write() as session:
        device.decide(session, town.ada.user, started["user_code"], approve=True)


def test_guessing_device_codes_is_stopped(client: httpx.Client, started: dict[str, Any]) -> None:
    answers = [client.post("/api/cli/device/token", json={"device_code": f"guess{n}"}) for n in range(31)]
    assert {answer.json()["error"] for answer in answers[:30]} == {"expired_token"}
    assert answers[30].status_code == 429
    assert poll(client, started).json()["error"] == "authorization_pending"


def test_starting_without_end_is_stopped(client: httpx.Client) -> None:
    answers = [client.post("/api/cli/device/authorize", json={}) for _ in range(31)]
    assert [answer.status_code for answer in answers] == [200] * 30 + [429]
    wait = int(answers[-1].headers["retry-after"])
    assert 0 < wait <= 600
    assert f"{wait} seconds" in answers[-1].json()["error"]


def test_codes_are_not_stored_readably(platform: Platform, started: dict[str, Any]) -> None:
    with platform.database.read() as session:
        login = session.query(DeviceLogin).one()
        assert started["device_code"] not in (login.device_code_hash, login.user_code)


def test_the_code_survives_the_way_over_the_sign_in_page(
    client: httpx.Client, started: dict[str, Any]
) -> None:
    page = started["verification_uri_complete"].removeprefix("http://127.0.0.1:8400")
    answer = client.get(page, headers={"Accept": "text/html"}, follow_redirects=False)
    assert answer.status_code == 303
    target = parse_qs(urlsplit(answer.headers["location"]).query)["next"]
    assert target == [page]

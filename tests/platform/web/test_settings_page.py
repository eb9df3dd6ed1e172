"""General settings: another name, another time zone, and the end of a workspace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import func, select, update

from osmosis_platform.audit.models import AuditEvent
from osmosis_platform.compute.plan import run_folder
from osmosis_platform.context import Platform
from osmosis_platform.db.models import metadata
from osmosis_platform.db.types import utc_now
from osmosis_platform.dev_servers.models import DevServer
from osmosis_platform.runs.models import Run, RunAttempt, RunMetric
from osmosis_platform.runs.service import log

PAGE = "/acme/settings"
# What is nobody's or everybody's: accounts, base models, finished jobs, bytes, and who did what.
LASTING = {
    "users",
    "browser_sessions",
    "access_tokens",
    "base_models",
    "jobs",
    "blobs",
    "audit_events",
    "alembic_version",
}


def audited(platform: Platform) -> list[tuple[str, str, dict[str, Any]]]:
    with platform.database.read() as session:
        found = session.scalars(select(AuditEvent).order_by(AuditEvent.created_at, AuditEvent.id))
        return [(event.action, event.target, event.details) for event in found]


def test_a_new_name_moves_the_pages_and_leaves_the_repository(
    browser: Callable[[str], Any], platform: Platform, town: Any
) -> None:
    amy = browser("amy")
    answer = amy.post(PAGE, name=" rockets ", timezone="Asia/Tokyo")
    assert (answer.status_code, answer.headers["location"]) == (303, "/rockets/settings")
    assert amy.get(PAGE).status_code == 404
    data = amy.json("/rockets/settings")
    assert (data["workspace"], data["timezone"]) == ("rockets", "Asia/Tokyo")
    assert (data["id"], data["repository"]) == (town.acme.id, "Acme/Agents")
    assert "Times in Asia/Tokyo" in amy.get("/rockets").text
    assert audited(platform) == [
        ("workspace.timezone", "acme", {"before": "UTC", "after": "Asia/Tokyo"}),
        ("workspace.rename", "rockets", {"before": "acme", "after": "rockets"}),
    ]
    amy.post("/rockets/settings", name="rockets", timezone="Asia/Tokyo")
    assert len(audited(platform)) == 2


@pytest.mark.parametrize(
    ("name", "timezone", "status", "says"),
    [
        ("other", "UTC", 409, "already a workspace named other"),
        ("invite", "UTC", 400, "address of a page"),
        ("A b", "UTC", 400, "small letters"),
        ("", "UTC", 400, "small letters"),
        ("rockets", "Mars/Olympus", 400, "time zone"),
        ("rockets", "../etc/passwd", 400, "time zone"),
    ],
)
def test_what_cannot_be_changes_nothing(
    browser: Callable[[str], Any], platform: Platform, name: str, timezone: str, status: int, says: str
) -> None:
    amy = browser("amy")
    answer = amy.post(PAGE, html=True, name=name, timezone=timezone)
    assert answer.status_code == status
    assert says in answer.text.split('role="alert"')[1]
    assert amy.json(PAGE)["timezone"] == "UTC"
    assert audited(platform) == []


def test_each_role_has_its_forms(browser: Callable[[str], Any]) -> None:
    assert browser("max").forms(PAGE) == set()
    assert browser("amy").forms(PAGE) == {PAGE, f"{PAGE}/logo"}
    assert browser("ada").forms(PAGE) == {PAGE, f"{PAGE}/logo", f"{PAGE}/delete"}
    assert browser("max").post(PAGE, name="mine", timezone="UTC").status_code == 403
    assert browser("amy").post(f"{PAGE}/delete", confirm="acme").status_code == 403


def rows(platform: Platform) -> dict[str, int]:
    with platform.database.read() as session:
        counts = {
            name: session.scalar(select(func.count()).select_from(table)) or 0
            for name, table in metadata.tables.items()
        }
    return {name: count for name, count in counts.items() if count and name not in LASTING}


def test_an_owner_deletes_an_idle_workspace_and_no_other(
    browser: Callable[[str], Any], client: Any, platform: Platform, workshop: Any
) -> None:
    ada, eve, town = browser("ada"), browser("eve"), workshop.town
    eve.post("/other/settings/keys", name="theirs")
    theirs = {"workspaces": 1, "memberships": 1, "api_keys": 1}
    ada.post(f"{PAGE}/keys", name="ci")
    ada.post(f"{PAGE}/members/invites", email="g@example.com")
    secret = {"name": "A_KEY", "value": "v", "scope": "workspace"}
    assert client.post("/api/cli/environment-secrets", json=secret, headers=town.ada.scoped()).is_success
    submitted = client.post("/api/cli/eval-runs", json=workshop.body("tiny/model"), headers=town.ada.scoped())
    run_id = submitted.json()["id"]
    with platform.database.write() as session:
        session.add(RunAttempt(run_id=run_id, row_index=0, run_index=0, rollout_id="r", status="success"))
        session.add(RunMetric(run_id=run_id, key="k", step=1, value=1.0, timestamp=utc_now()))
        for owner in (run_id, workshop.dataset_id):
            log(session, owner, "a line")
        server = DevServer(
            workspace_id=town.acme.id, creator_id=town.ada.user.id, rollout_name="echo",
            repository_path="rollouts/echo", entrypoint="main.py", commit_sha="0" * 40, status="running", key_hash="",
        )  # fmt: skip
        session.add(server)
    folder = run_folder(platform, run_id).root
    folder.mkdir(parents=True)

    busy = ada.post(f"{PAGE}/delete", html=True, confirm="acme")
    assert busy.status_code == 409
    assert "1 runs, 1 development servers" in busy.text.split('role="alert"')[1]
    with platform.database.write() as session:
        session.execute(update(Run).values(status="finished"))
        session.execute(update(DevServer).values(status="stopped"))
    before = rows(platform)
    assert {
        "runs",
        "run_attempts",
        "run_metrics",
        "log_lines",
        "dev_servers",
        "invites",
        "secrets",
    } <= before.keys()
    wrong = ada.post(f"{PAGE}/delete", html=True, confirm="Acme")
    assert (wrong.status_code, "Type the name" in wrong.text) == (400, True)
    assert rows(platform) == before
    assert folder.is_dir()

    answer = ada.post(f"{PAGE}/delete", confirm="acme")
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    assert rows(platform) == theirs
    assert not folder.exists()
    assert not platform.git.path("Acme/Agents").exists()
    assert ada.get(PAGE).status_code == 404
    assert len(eve.json("/other/settings/keys")["keys"]) == 1
    assert audited(platform)[-1] == ("workspace.delete", "acme", {"id": town.acme.id})

"""The Git page: how to clone, what each push brought, and trying a failed sync again."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from sqlalchemy import select

from osmosis_platform.context import Platform
from osmosis_platform.jobs.models import Job
from osmosis_platform.repositories.models import Repository, SyncEvent
from osmosis_platform.repositories.service import sync_branch

PAGE = "/acme/git"


def test_syncs_are_listed_retried_and_asked_for(
    browser: Callable[[str], Any], platform: Platform, workshop: Any
) -> None:
    max = browser("max")
    with platform.database.write() as session:
        for number in range(60):
            status = "failed" if number == 3 else "success"
            event = SyncEvent(
                repository_id=workshop.town.repository.id, branch=f"b{number % 2}", status=status
            )
            session.add(event)
            session.flush()
            if status == "failed":
                failed = event.id
            else:
                good = event.id
    page = max.json(PAGE)
    assert (len(page["syncs"]), page["page"]["total"]) == (50, 60)
    assert page["repository"]["clone_url"].endswith("/git/Acme/Agents.git")
    chosen = max.json(f"{PAGE}?status=failed&branch=b1")
    assert [sync["id"] for sync in chosen["syncs"]] == [failed]
    assert max.post(f"{PAGE}/syncs/{good}/retry").status_code == 409
    assert max.post(f"{PAGE}/syncs/{failed}/retry").status_code == 303
    assert max.post(f"{PAGE}/sync").status_code == 303
    with platform.database.read() as session:
        waiting = list(
            session.scalars(
                select(SyncEvent).where(SyncEvent.status == "pending").order_by(SyncEvent.created_at)
            )
        )
        assert [event.branch for event in waiting] == ["b1", "main"]
        jobs = session.scalars(select(Job.payload).where(Job.kind == "repositories.sync"))
        assert {payload["sync_id"] for payload in jobs} == {event.id for event in waiting}
    sync_branch(platform, waiting[1].id)
    newest = max.json(f"{PAGE}?branch=main")["syncs"][0]
    assert (newest["status"], newest["rollouts_found"], newest["author"]) == ("success", 1, "Ada")


def test_an_admin_creates_the_repository(
    browser: Callable[[str], Any], platform: Platform, town: Any
) -> None:
    with platform.database.write() as session:
        session.delete(session.get_one(Repository, town.repository.id))
    assert "An admin or owner" in browser("max").get(PAGE).text
    amy = browser("amy")
    for page in ("/acme", "/acme/rollouts", "/acme/training/new"):
        assert re.search(r'href="/acme/git">Create ', amy.get(page).text)
    for name in ("", "../up", "A", "a.git", "a/b"):
        assert amy.post(f"{PAGE}/repository", name=name).status_code == 400
    assert amy.post(f"{PAGE}/repository", name="agents").status_code == 303
    assert amy.post(f"{PAGE}/repository", name="more").status_code == 409
    assert "multiply-local-openai" in platform.git.list_folders("acme/agents", "main", "rollouts")


def test_rollouts_are_searched(browser: Callable[[str], Any], workshop: Any) -> None:
    max = browser("max")
    assert [r["name"] for r in max.json("/acme/rollouts?q=CH")["rollouts"]] == ["echo"]
    assert max.json("/acme/rollouts?q=nothing")["page"]["total"] == 0
    assert "No rollout matches" in max.get("/acme/rollouts?q=nothing").text
    assert "experiment.rollout=echo" in max.get("/acme/rollouts").text

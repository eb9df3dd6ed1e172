"""A repository on another git host is connected, mirrored and followed, over real HTTP on loopback."""

from __future__ import annotations

import hashlib
import hmac
import logging
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import select

from osmosis_platform.audit.models import AuditEvent
from osmosis_platform.context import Platform
from osmosis_platform.db.types import utc_now
from osmosis_platform.jobs.models import Job
from osmosis_platform.repositories import mirrors, polling, remote
from osmosis_platform.repositories.jobs import WORK
from osmosis_platform.repositories.models import Connection, Repository, SyncEvent
from osmosis_platform.repositories.remote import origin_of
from osmosis_platform.repositories.service import clone_url
from osmosis_platform.secrets.rotation import rotate
from tests.platform.repositories.elsewhere import Elsewhere, serving
from tests.platform.web.conftest import browser

__all__ = ["browser"]
PAGE = "/acme/git"
TOKEN = "ghp_sesame123456"


@pytest.fixture
def elsewhere(platform: Platform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Elsewhere]:
    for limit in ("CHECK_SECONDS", "SUBMIT_SECONDS"):  # a busy machine is no reason to fail
        monkeypatch.setattr(mirrors, limit, 300.0)
    monkeypatch.setattr(remote, "_PATIENCE", "300")
    platform.settings = platform.settings.model_copy(update={"webhooks_anywhere": True})
    with serving(tmp_path / "elsewhere") as host:
        yield host


@pytest.fixture
def amy(browser: Callable[[str], Any], platform: Platform, workshop: Any) -> Any:
    """An admin of `acme`, whose built-in repository is Acme/Agents."""
    return browser("amy")


def work_off(platform: Platform) -> None:
    """Do what is queued for repositories, as the platform's threads would."""
    for queue in (mirrors.QUEUE, "light"):
        while job := platform.jobs.claim(queue):
            WORK[job.kind].handler(job, platform)
            with platform.database.write() as session:
                platform.jobs.finish(session, job)


def history(platform: Platform) -> list[tuple[str, str]]:
    with platform.database.read() as session:
        events = session.scalars(select(SyncEvent).order_by(SyncEvent.created_at, SyncEvent.id))
        return [(event.branch, event.status) for event in events]


def rollouts(client: httpx.Client, headers: dict[str, str], branch: str = "main") -> list[str]:
    answer = client.get(f"/api/cli/rollouts?branch={branch}", headers=headers)
    assert answer.status_code == 200, answer.text
    return [item["name"] for item in answer.json()["rollouts"]]


def signed(secret: str, body: bytes, **headers: str) -> dict[str, str]:
    digest = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return {"X-Hub-Signature-256": f"sha256={digest}", "Content-Type": "application/json", **headers}


def test_a_private_repository_is_followed(
    amy: Any, client: httpx.Client, platform: Platform, workshop: Any, elsewhere: Elsewhere,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    caplog.set_level(logging.DEBUG)
    work = elsewhere.work("Octo/Agents")
    first = elsewhere.push(work, "one")
    elsewhere.push(work, "two", branch="feature/x")
    elsewhere.token = TOKEN
    url = elsewhere.url("Octo/Agents")
    for token, reason in (("", "only with an access token"), ("wrong-token", "refused the access token")):
        refused = amy.post(f"{PAGE}/connection", html=True, url=url, token=token)
        assert (refused.status_code, reason in refused.text) == (400, True), refused.text
        assert "wrong-token" not in refused.text
    assert amy.json(PAGE)["repository"]["connection"] is None  # nothing half-done

    assert amy.post(f"{PAGE}/connection", url=url, token=TOKEN).status_code == 303
    work_off(platform)
    assert set(elsewhere.seen[-2:]) == {f"x-access-token:{TOKEN}"}
    # The identity is that of the connected address: what a clone of it has as its origin.
    headers = {**workshop.town.max.headers, "X-Osmosis-Git": "octo/agents"}
    assert rollouts(client, headers, "feature/x") == ["one", "two"]
    assert history(platform) == [("*", "success"), ("feature/x", "success"), ("main", "success")]
    page = amy.json(PAGE)
    # A clone of the mirror has an origin that the command line understands, and pushes to the host.
    assert page["repository"]["clone_url"].endswith("/git/Octo/Agents.git")
    assert f"git remote set-url --push origin {url}" in amy.get(PAGE).text
    shown = amy.get(PAGE).text + str(page) + caplog.text
    with platform.database.read() as session:
        kept = session.scalars(select(Connection)).one()
        everything = shown + str(session.scalars(select(AuditEvent.details)).all()) + repr(kept.ciphertext)
        everything += str(session.scalars(select(Job.payload)).all())
    assert TOKEN not in everything

    # A run is submitted at a commit that was pushed a moment ago, without any sync before.
    elsewhere.push(work, "echo")
    with platform.database.write() as session:
        session.scalars(select(Connection)).one().tried_at = None
    submitted = client.post("/api/cli/eval-runs", json=workshop.body("tiny/model"), headers=headers)
    assert submitted.status_code == 201, submitted.text
    with platform.database.write() as session:
        session.scalars(select(Connection)).one().tried_at = None
    newest = elsewhere.push(work, "later")
    body = workshop.body("tiny/model")
    body["experiment_config"]["commit_sha"] = newest
    assert client.post("/api/cli/eval-runs", json=body, headers=headers).status_code == 201
    # Commits of before are here still: those of the built-in repository, and those that a force-push removes.
    run = ["reset", "--quiet", "--hard", first]
    subprocess.run(["git", *run], cwd=work, check=True)
    elsewhere.push(work, "forced")
    amy.post(f"{PAGE}/sync")
    work_off(platform)
    assert rollouts(client, headers) == ["forced", "one"]
    for commit in (newest, workshop.commit_sha):
        assert platform.git.commit("Octo/Agents", commit).sha == commit


def test_what_the_host_refuses_is_in_the_history(
    amy: Any, client: httpx.Client, platform: Platform, workshop: Any, elsewhere: Elsewhere
) -> None:
    work = elsewhere.work("octo/agents")
    elsewhere.push(work, "one")
    elsewhere.push(work, "two", branch="old")
    assert amy.post(f"{PAGE}/connection", url=elsewhere.url("octo/agents")).status_code == 303
    work_off(platform)
    elsewhere.token = TOKEN
    amy.post(f"{PAGE}/sync")
    work_off(platform)
    failed = next(sync for sync in amy.json(PAGE)["syncs"] if sync["status"] == "failed")
    assert (failed["branch"], "only with an access token" in failed["error"]) == ("*", True)
    assert "The last fetch failed" in amy.get(PAGE).text
    assert amy.post(f"{PAGE}/connection/token", token="no").status_code == 400
    assert amy.post(f"{PAGE}/connection/token", token=TOKEN).status_code == 303
    work_off(platform)
    assert amy.json(PAGE)["repository"]["connection"]["error"] is None
    rotate(platform.database, platform.keys)
    subprocess.run(["git", "push", "--quiet", "origin", ":old"], cwd=work, check=True)
    assert amy.post(f"{PAGE}/syncs/{failed['id']}/retry").status_code == 303
    work_off(platform)
    headers = workshop.town.max.scoped()
    assert rollouts(client, headers, "old") == []
    assert rollouts(client, headers) == ["one"]
    elsewhere.moved = True
    amy.post(f"{PAGE}/sync")
    work_off(platform)
    assert "connect its new address" in amy.json(PAGE)["repository"]["connection"]["error"]
    # A host that is away does not keep anybody from what is here.
    elsewhere.moved, elsewhere.port = False, 1
    with platform.database.write() as session:
        repository = session.get_one(Repository, workshop.town.repository.id)
        repository.remote_url = elsewhere.url("octo/agents")
        session.scalars(select(Connection)).one().tried_at = None
    mirrors.freshen(platform, repository, "nope", None)
    assert "cannot be reached" in amy.json(PAGE)["repository"]["connection"]["error"]
    assert rollouts(client, headers) == ["one"]


def test_pushes_are_told_by_a_webhook(
    amy: Any, client: httpx.Client, platform: Platform, workshop: Any, elsewhere: Elsewhere
) -> None:
    work = elsewhere.work("octo/agents")
    elsewhere.push(work, "one")
    amy.post(f"{PAGE}/connection", url=elsewhere.url("octo/agents"))
    work_off(platform)
    hook = amy.json(PAGE)["repository"]["connection"]["webhook_url"].partition("/api/")[2]
    body = b'{"ref": "refs/heads/main"}'

    def post(headers: dict[str, str], path: str = hook) -> int:
        return client.post(f"/api/{path}", content=body, headers=headers).status_code

    assert post(signed("", body)) == 401  # there is no secret yet
    made = amy.post(f"{PAGE}/connection/secret")
    assert made.status_code == 201
    secret = made.json()["secret"]
    assert secret not in amy.get(PAGE).text
    assert post(signed("other", body)) == post({"Content-Type": "application/json"}) == 401
    assert post(signed(secret, body), path="git/nothing/push") == 404
    elsewhere.push(work, "two")
    for _ in range(3):
        assert post(signed(secret, body, **{"X-GitHub-Delivery": "d1", "X-GitHub-Event": "push"})) == 202
    assert post(signed(secret, body, **{"X-GitHub-Event": "ping"})) == 202
    with platform.database.read() as session:
        waiting = session.scalars(select(Job).where(Job.queue == mirrors.QUEUE, Job.status == "queued")).all()
    assert len(waiting) == 1
    work_off(platform)
    assert rollouts(client, workshop.town.max.scoped()) == ["one", "two"]
    before = history(platform)
    post(signed(secret, body, **{"X-GitHub-Delivery": "d2"}))
    work_off(platform)
    assert history(platform) == before
    shutil.rmtree(platform.git.path("octo/agents"))  # as after a restore without it
    # Hosts that tell nothing are asked now and then.
    assert polling.request_due(platform) == 0
    with platform.database.write() as session:
        session.scalars(select(Connection)).one().tried_at = utc_now() - 2 * polling.EVERY
    elsewhere.push(work, "three")
    assert polling.request_due(platform) == 1
    work_off(platform)
    assert rollouts(client, workshop.town.max.scoped()) == ["one", "three", "two"]


def test_nobody_pushes_here_and_disconnecting_returns(
    amy: Any, client: httpx.Client, platform: Platform, workshop: Any, elsewhere: Elsewhere
) -> None:
    work = elsewhere.work("acme/agents")  # the very name of the built-in repository
    pinned = elsewhere.push(work, "one")
    amy.post(f"{PAGE}/connection", url=elsewhere.url("acme/agents"))
    work_off(platform)
    me = {"Authorization": f"Bearer {workshop.town.max.token}"}
    for name in ("acme/agents", "Acme/Agents-builtin"):
        address = f"/git/{name}.git/info/refs?service="
        assert client.get(f"{address}git-upload-pack", headers=me).status_code == 200
        refused = client.get(f"{address}git-receive-pack", headers=me)
        assert (refused.status_code, "push there" in refused.text) == (403, True)
    assert amy.post(f"{PAGE}/connection", url=elsewhere.url("other/one")).status_code == 400
    assert amy.post(f"{PAGE}/connection/remove").status_code == 303
    work_off(platform)
    assert rollouts(client, workshop.town.max.scoped()) == ["echo"]
    full_name = amy.json(PAGE)["repository"]["full_name"]
    assert platform.git.commit(full_name, pinned).sha == pinned
    assert not platform.git.path("acme/agents").exists()
    assert amy.post(f"{PAGE}/connection/remove").status_code == 409


def test_a_workspace_begins_with_a_repository_elsewhere(
    amy: Any, browser: Callable[[str], Any], platform: Platform, elsewhere: Elsewhere
) -> None:
    elsewhere.push(elsewhere.work("octo/agents"), "one")
    url = elsewhere.url("octo/agents")
    assert amy.post("/new", name="fresh", url=url).status_code == 303
    work_off(platform)
    assert amy.json("/fresh/git")["repository"]["full_name"] == "octo/agents"
    taken = browser("eve").post("/other/git/connection", url=url, html=True)
    assert (taken.status_code, "belongs to a workspace already" in taken.text) == (409, True)
    assert amy.post("/fresh/git/connection/remove").status_code == 303
    assert amy.json("/fresh/git")["repository"] is None
    assert browser("eve").post("/other/git/connection", url=url).status_code == 303
    work_off(platform)
    assert browser("eve").json("/other/rollouts")["rollouts"][0]["name"] == "one"


def test_repositories_on_github_are_cloned_from_there() -> None:
    url = "https://github.com/octo/agents.git"
    repository = Repository(full_name="octo/agents", kind="mirror", remote_url=url)
    assert clone_url("http://here", repository) == url
    assert origin_of("https://GitHub.com/octo/agents/", None, anywhere=False).url == url


@pytest.mark.parametrize(
    "url",
    [
        "http://github.com/a/b", "https://github.com:8443/a/b", "https://me:pw@github.com/a/b", "ssh://git@github.com/a/b",
        "https://github.com/a", "https://github.com/a/b/c", "https://github.com/a/..", "https://github.com/a/b?x=1", "a/b",
        "https://github.com/-a/b", "file:///etc", "ext::sh -c x",
    ],
)  # fmt: skip
def test_addresses_that_cannot_be_connected(url: str) -> None:
    with pytest.raises(Exception, match=r"repository address|to look like"):
        origin_of(url, None, anywhere=False)


def test_the_own_network_cannot_be_connected(amy: Any, elsewhere: Elsewhere, platform: Platform) -> None:
    platform.settings = platform.settings.model_copy(update={"webhooks_anywhere": False})
    refused = amy.post(f"{PAGE}/connection", url="https://127.0.0.1/a/b")
    assert (refused.status_code, elsewhere.requests) == (400, 0)

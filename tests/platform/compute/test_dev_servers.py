"""Development servers run a pushed rollout behind an address until they are stopped, expire or fall."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from osmosis_platform.db.types import utc_now
from osmosis_platform.dev_servers import api
from osmosis_platform.dev_servers.models import DevServer
from osmosis_platform.jobs.runner import JobRunner
from osmosis_platform.repositories.git import run_git

ROLLOUT = Path(__file__).with_name("echo_rollout.py").read_text()
PATH = "/api/cli/dev-rollout-server"


def head(site: Any) -> str:
    return run_git("rev-parse", "main", cwd=site.platform.git.path("Acme/Agents")).decode().strip()


def body(site: Any, **change: Any) -> dict[str, Any]:
    return {
        "rollout_name": "echo",
        "commit_sha": head(site),
        "repository_path": "rollouts/echo",
        "entrypoint": "main.py",
        "ttl_hours": 24,
        **change,
    }


def start(site: Any, **change: Any) -> dict[str, Any]:
    answer = site.client.post(PATH, json=body(site, **change))
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def row(site: Any, server_id: str) -> DevServer:
    with site.platform.database.read() as session:
        found: DevServer = session.get_one(DevServer, server_id)
        return found


def wait_for(site: Any, server_id: str, *statuses: str) -> DevServer:
    def look() -> DevServer | None:
        found = row(site, server_id)
        return found if found.status in statuses else None

    try:
        found: DevServer = site.until("/".join(statuses), look, 90.0)
        return found
    except AssertionError as error:
        raise AssertionError(f"{error}; log:\n{site.log(server_id)}") from None


def call(site: Any, made: dict[str, Any], token: str, path: str = "health") -> httpx.Response:
    address = made["url"].removeprefix("http://127.0.0.1:8400")
    answer: httpx.Response = site.client.get(
        f"{address}/{path}", headers={"Authorization": f"Bearer {token}"}
    )
    return answer


def test_a_server_answers_until_it_is_stopped(site: Any, alive: Any) -> None:
    made = start(site, ttl_hours=None)
    assert (made["name"], made["status"], made["expires_at"]) == ("echo", "pending", None)
    wait_for(site, made["id"], "running", "failed")
    (item,) = site.client.get(f"{PATH}?limit=50&offset=0").json()["dev_rollout_servers"]
    assert (item["id"], item["url"], item["status"]) == (made["id"], made["url"], "running")
    assert item["started_at"]
    assert "api_key" not in item, "the key is told once"
    town = site.workshop.town
    for token in (made["api_key"], town.max.token):
        assert call(site, made, token).json()["status"]
    assert "/rollout" in call(site, made, made["api_key"], "openapi.json").json()["paths"]
    assert call(site, made, town.eve.token).status_code == 404
    assert call(site, made, "osd_wrong").status_code == 401
    stopped = site.client.request("DELETE", f"{PATH}/{made['id']}", json={})
    assert (stopped.status_code, stopped.json()["status"]) == (200, "stopped")
    again = site.client.request("DELETE", f"{PATH}/{made['id']}", json={})
    assert (again.status_code, again.json()["status"]) == (200, "stopped")
    folder = site.platform.settings.data_dir / "dev-servers" / made["id"]
    site.until("clean folder", lambda: not folder.exists())
    assert call(site, made, made["api_key"]).status_code == 503
    assert site.client.get(PATH).json()["total_count"] == 0
    lines = site.client.get(f"{PATH}/{made['id']}/logs?limit=100&direction=older").json()["logs"]
    assert any("hello from the rollout, the key is None" in line["message"] for line in lines)


def events(
    site: Any, server_id: str, tail: int, comments: list[str] | None = None
) -> Iterator[dict[str, str]]:
    with site.client.stream("GET", f"{PATH}/{server_id}/logs/stream?tail={tail}") as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        for line in answer.iter_lines():
            if line.startswith("data: "):
                yield json.loads(line.removeprefix("data: "))
            elif comments is not None and line.startswith(":"):
                comments.append(line)


def test_the_log_is_streamed_to_its_end(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert api.HEARTBEAT_SECONDS < 65, "clients give up then"
    monkeypatch.setattr(api, "HEARTBEAT_SECONDS", 0.0)
    made = start(site)
    seen: list[dict[str, str]] = []
    comments: list[str] = []
    follower = threading.Thread(
        target=lambda: seen.extend(events(site, made["id"], 100, comments)), daemon=True
    )
    follower.start()
    site.until("word that it is ready", lambda: "The server is ready." in site.log(made["id"]), 90.0)
    site.client.request("DELETE", f"{PATH}/{made['id']}", json={})
    follower.join(60)
    assert not follower.is_alive(), "the stream ends with the server"
    folder = site.platform.settings.data_dir / "dev-servers" / made["id"]
    site.until("clean folder", lambda: not folder.exists())  # and with it the end of the log
    assert ": ping" in comments
    messages = [event["message"] for event in seen]
    assert messages[0].startswith("Starting rollouts/echo/main.py")
    assert "The server is ready." in messages
    assert "The server stopped." in messages
    assert all(set(event) == {"timestamp", "message"} for event in seen)
    assert len(set(messages)) == len(messages), "every line once"
    assert [event["message"] for event in events(site, made["id"], 1)] == site.log(made["id"]).splitlines()[
        -1:
    ]


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import sys\nsys.exit(3)\n", "raised SystemExit: 3"),
        (
            ROLLOUT.replace("    backend =", "    raise SystemExit('no port for me')\n    backend ="),
            "no port for me",
        ),
    ],
)
def test_a_server_that_falls_says_why(site: Any, push_rollout: Any, source: str, reason: str) -> None:
    push_rollout(source)
    made = start(site)
    found = wait_for(site, made["id"], "failed", "running")
    assert found.status == "failed"
    assert reason in (found.error or "")
    assert reason in site.log(made["id"])


def test_a_server_expires(site: Any) -> None:
    made = start(site, ttl_hours=1)
    wait_for(site, made["id"], "running", "failed")
    site.runner.stop()
    with site.platform.database.write() as session:
        session.get_one(DevServer, made["id"]).expires_at = utc_now() - timedelta(seconds=1)
    site.runner = JobRunner(site.platform, site.supervisor.work(), site.supervisor.threads())
    site.runner.start()
    assert wait_for(site, made["id"], "expired", "failed").status == "expired"
    log = site.log(made["id"])
    assert log.count("hello from the rollout") >= 1, "it was started again by the next process"


def test_a_workspace_has_a_number_of_servers(site: Any) -> None:
    site.runner.stop()
    made = [start(site) for _ in range(site.platform.settings.dev_server_slots)]
    answer = site.client.post(PATH, json=body(site))
    assert (answer.status_code, answer.json()["code"]) == (409, "DEV_SERVER_QUOTA_REACHED")
    site.client.request("DELETE", f"{PATH}/{made[0]['id']}", json={})
    start(site)


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"commit_sha": "1234567"}, 404),
        ({"commit_sha": "main"}, 400),
        ({"repository_path": "rollouts/none"}, 404),
        ({"repository_path": "rollouts/../../etc"}, 400),
        ({"entrypoint": "../main.py"}, 400),
        ({"entrypoint": "other.py"}, 404),
        ({"ttl_hours": 0}, 400),
        ({"rollout_name": ""}, 400),
    ],
)
def test_what_cannot_be_started(site: Any, change: dict[str, Any], status: int) -> None:
    answer = site.client.post(PATH, json=body(site, **change))
    assert answer.status_code == status, answer.text
    assert site.client.get(PATH).json()["total_count"] == 0

"""What a rollout of a training wrote is found beside its trajectory, as safe as beside an attempt of an evaluation."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from sqlalchemy import func, select

from osmosis_platform.compute.redaction import Redactor
from osmosis_platform.context import Platform
from osmosis_platform.runs import tokens
from osmosis_platform.runs.models import Run, RunSampleArtifact
from osmosis_platform.runs.service import finish
from osmosis_platform.runs.status import transition

PAGE = b"<script>alert(1)</script>"
SECRET = "canary-5e1f-value"


@pytest.fixture
def max(browser: Callable[[str], Any], workshop: Any) -> Any:
    return browser("max")


@pytest.fixture
def run_id(client: httpx.Client, workshop: Any, platform: Platform, monkeypatch: pytest.MonkeyPatch) -> str:
    """A training at work that was given a secret."""
    body = workshop.body("tiny/model")
    answer = client.post("/api/cli/training-runs", headers=workshop.town.ada.scoped(), json=body)
    run_id = str(answer.json()["id"])
    redactors = {run_id: Redactor({"A_KEY": SECRET})}
    monkeypatch.setattr(platform, "supervisor", SimpleNamespace(redactors=redactors))
    return run_id


@pytest.fixture
def worker(client: httpx.Client, platform: Platform, run_id: str) -> Callable[..., httpx.Response]:
    """Calls the run API below the address of the run."""
    with platform.database.write() as session:
        run = session.get_one(Run, run_id)
        transition(run, "running")
        headers = {"Authorization": f"Bearer {tokens.issue(run)}"}
    below = f"/api/runs/{run_id}"
    return lambda method, path, **body: client.request(method, f"{below}/{path}", headers=headers, **body)


def stored(worker: Any, content: bytes) -> str:
    sha256 = hashlib.sha256(content).hexdigest()
    assert worker("PUT", f"blobs/{sha256}", content=content).status_code == 201
    return sha256


def sample(
    worker: Any, files: dict[str, bytes] | None, rollout_id: str = "r1", **more: Any
) -> dict[str, Any]:
    event = {"type": "sample", "step": 4, "row_index": 5, "sample_index": 1, "rollout_id": rollout_id, **more}
    event["blob"] = stored(worker, json.dumps({"calls": []}).encode())
    if files is not None:
        event["artifacts"] = [
            {"path": path, "size": len(content), "sha256": stored(worker, content)}
            for path, content in files.items()
        ]
    return event


def test_files_of_a_sample_are_shown_and_open_as_downloads(
    max: Any, worker: Any, run_id: str, client: httpx.Client, platform: Platform
) -> None:
    files = {"out/<b>.html": PAGE, f"a-{SECRET}.txt": f"it is {SECRET}".encode()}
    mine = sample(worker, files)
    events = [
        mine,
        mine,
        sample(worker, {"late.txt": b"of another rollout"}, "r2"),
        sample(worker, None, step=3),
    ]
    for _ in range(2):
        assert worker("POST", "events", json={"events": events}).status_code == 200

    page = f"/acme/training/{run_id}/samples/4/5/1"
    text = max.get(page).text
    assert ">Artifacts</h2>" in text
    assert "out/&lt;b&gt;.html" in text
    assert ">Artifacts</h2>" not in max.get(f"/acme/training/{run_id}/samples/3/5/1").text
    shown = {file["path"]: file for file in max.json(page)["artifacts"]}
    assert {path: file["size"] for path, file in shown.items()} == {
        "a-[A_KEY].txt": len(b"it is [A_KEY]"),
        "out/<b>.html": len(PAGE),
    }
    opened = {}
    for path, file in shown.items():
        address = urlsplit(file["url"])
        answer = client.get(f"{address.path}?{address.query}")
        assert answer.headers["content-disposition"].startswith("attachment")
        assert "sandbox" in answer.headers["content-security-policy"]
        opened[path] = answer.content
        assert client.get(address.path).status_code in (403, 422)
    assert opened == {"a-[A_KEY].txt": b"it is [A_KEY]", "out/<b>.html": PAGE}

    with platform.database.write() as session:
        finish(session, session.get_one(Run, run_id), "finished")
    assert max.post("/acme/training/bulk", action="delete", run=[run_id]).status_code == 303
    with platform.database.read() as session:
        assert session.scalar(select(func.count()).select_from(RunSampleArtifact)) == 0


def test_a_sample_with_a_file_that_cannot_be_is_refused_whole(max: Any, worker: Any, run_id: str) -> None:
    good = sample(worker, {"a.txt": b"x"})
    for wrong in ({"path": "../x"}, {"path": "/x"}, {"path": "a\\b"}, {"sha256": "0" * 64}):
        bad = {**good, "step": 5, "artifacts": [{**good["artifacts"][0], **wrong}]}
        assert worker("POST", "events", json={"events": [good, bad]}).status_code == 400, wrong
    assert max.get(f"/acme/training/{run_id}/samples/4/5/1").status_code == 404

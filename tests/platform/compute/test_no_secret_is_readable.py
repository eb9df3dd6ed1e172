"""Invariant 5: no secret value appears in a log, an API answer, an artifact, an error, the database or an argument in clear."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

CANARY = "canary-5e1f/ä-value"
FORMS = [CANARY.encode(), b"canary-5e1f"]


def found_in(content: bytes) -> bool:
    return any(form in content for form in FORMS)


def arguments_of_every_process() -> dict[str, bytes]:
    """The command lines of this machine, by process id."""
    lines = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines[path.parent.name] = path.read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
    return lines


def answers(site: Any, run_id: str) -> dict[str, bytes]:
    """Everything that can be asked about a run, pages and files included."""
    types = "metrics,trajectories,artifacts,logs"
    run = f"/api/cli/eval-runs/{run_id}"
    manifest = site.client.get(f"{run}/samples/manifest?types={types}").json()["files"]
    items = [{"path": file["path"], "token": file["token"]} for file in manifest]
    urls = site.client.post(f"{run}/samples/download-urls", json={"items": items}).json()["items"]
    found = {"manifest": str(manifest).encode()}
    for size, item in zip((file["size"] for file in manifest), urls, strict=True):
        parts = urlsplit(item["url"])
        answer = site.client.get(f"{parts.path}?{parts.query}")
        assert (answer.status_code, len(answer.content)) == (200, size), item["path"]
        found[item["path"]] = answer.content
    for path in (
        run,
        f"{run}/metrics",
        f"{run}/logs?limit=200",
        "/api/cli/eval-runs",
        "/api/cli/environment-secrets",
    ):
        found[path] = site.client.get(path).content
    return found


@pytest.mark.parametrize("given", ["stored", "for this run"])
def test_no_secret_is_readable(
    site: Any, script: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, given: str
) -> None:
    gate = tmp_path / "gate"
    script(
        say=CANARY, leak=CANARY, steps=2, fail=f"the provider refused {CANARY}", wait_before={"1": str(gate)}
    )
    secrets: dict[str, Any] = {"required": ["A_KEY"]}
    if given == "stored":
        body = {"name": "A_KEY", "value": CANARY, "scope": "workspace"}
        assert site.client.post("/api/cli/environment-secrets", json=body).status_code == 200
    else:
        secrets["provided"] = {"A_KEY": CANARY}
    with caplog.at_level(logging.DEBUG):
        run_id = site.submit("eval", model="openai/gpt-5-mini", secrets=secrets)
        site.until("first attempt", lambda: site.run(run_id).total_runs)
        running = arguments_of_every_process()
        assert [pid for pid, line in running.items() if found_in(line)] == []
        gate.touch()
        run = site.wait_for(run_id, "finished", "failed")
    assert (run.status, run.error) == ("failed", "the provider refused [A_KEY]"), site.log(run_id)
    assert "[A_KEY]" in site.log(run_id)
    seen = answers(site, run_id)
    assert [name for name, content in seen.items() if found_in(content)] == []
    assert seen["artifacts/row_0_run_0/out/a[A_KEY].txt"] == b"an artifact[A_KEY]"
    assert seen["artifacts/row_0_run_0/out/b.bin"] == b"\0\1\2" + b"*" * len(CANARY.encode()) + b"\0"
    assert b"[A_KEY]" in seen["trajectories/row_0_run_0.json"]
    assert not found_in(caplog.text.encode())
    kept = [*site.platform.settings.data_dir.glob("osmosis.sqlite3*"), *site.platform.blobs.folder.rglob("*")]
    assert [path.name for path in kept if path.is_file() and found_in(path.read_bytes())] == []


def test_a_run_that_does_not_name_a_secret_does_not_get_it(site: Any, script: Any) -> None:
    body = {"name": "A_KEY", "value": CANARY, "scope": "workspace"}
    assert site.client.post("/api/cli/environment-secrets", json=body).status_code == 200
    script(steps=1)
    run_id = site.submit("eval", model="openai/gpt-5-mini")
    assert site.wait_for(run_id, "finished", "failed").status == "finished", site.log(run_id)
    assert "the key is None" in site.log(run_id)

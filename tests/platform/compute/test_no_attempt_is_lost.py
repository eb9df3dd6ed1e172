"""Invariant 1: a finished attempt is never lost and never executed twice, wherever any process is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx

from osmosis_platform.runs.models import Run, RunAttempt
from osmosis_platform.settings import Settings


def test_a_killed_eval_worker(site: Any, script: Any) -> None:
    script(kill_self_at=1, steps=4, lives=2)
    run_id = site.submit("eval", evaluation_config={"n": 1, "limit": 4})
    run = site.wait_for(run_id, "finished", "failed")
    assert run.status == "finished", site.log(run_id)
    assert run.results["total_runs"] == 4
    assert run.results["score"] == sum(range(4)) / 40
    lives = [line for line in site.log(run_id).splitlines() if line.startswith("worker life")]
    assert len(lives) == 2
    with site.platform.database.read() as session:
        attempts = (
            session.query(RunAttempt).where(RunAttempt.run_id == run_id).order_by(RunAttempt.row_index).all()
        )
        assert [attempt.rollout_id for attempt in attempts] == ["r0", "r1", "r2", "r3"]
        assert all(attempt.trajectory_sha256 for attempt in attempts)
    manifest = site.client.get(
        f"/api/cli/eval-runs/{run_id}/samples/manifest?types=trajectories,artifacts"
    ).json()
    assert len(manifest["files"]) == 9


HOST = Path(__file__).with_name("platform_process.py")


def test_a_killed_platform_takes_its_children_along_and_the_next_one_goes_on(
    platform: Any, workshop: Any, push_rollout: Any, tmp_path: Path, alive: Any
) -> None:
    from osmosis_platform.context import open_platform

    push_rollout(Path(__file__).with_name("echo_rollout.py").read_text())
    script, gate = tmp_path / "script.json", tmp_path / "gate"
    script.write_text(json.dumps({"steps": 4, "wait_before": {"2": str(gate)}}))
    settings, headers = platform.settings, workshop.town.ada.scoped()
    platform.close()

    first, address = start_platform(settings, script)
    try:
        body = workshop.body("tiny/model", evaluation_config={"n": 1, "limit": 4})
        run_id = httpx.post(
            f"{address}/api/cli/eval-runs", json=body, headers=headers, trust_env=False
        ).json()["id"]
        work = settings.data_dir / "runs" / run_id / "work"

        def executed() -> list[str]:
            return (work / "executed").read_text().split() if (work / "executed").exists() else []

        wait(lambda: executed() == ["0", "1"])
        wait(lambda: results(address, run_id, headers).get("total_runs") == 2)
        worker = int((work / "pid").read_text())
    finally:
        first.send_signal(signal.SIGKILL)
        first.wait()
    wait(lambda: not alive(worker))
    wait(lambda: not processes_of(run_id))

    second, address = start_platform(settings, script)
    try:
        wait(lambda: (work / "lives").read_text() == "2")
        before = executed()
        gate.touch()
        wait(lambda: status(address, run_id, headers) in ("finished", "failed"))
        assert before == ["0", "1"], "nothing finished was executed again"
        assert results(address, run_id, headers)["total_runs"] == 4
    finally:
        second.send_signal(signal.SIGKILL)
        second.wait()
    again = open_platform(settings)
    with again.database.read() as session:
        assert session.get_one(Run, run_id).status == "finished"
    again.close()


def start_platform(settings: Settings, script: Path) -> tuple[subprocess.Popen[str], str]:
    command = [sys.executable, str(HOST), str(settings.data_dir), str(settings.key_file), str(script)]
    env = {**os.environ, "OSMOSIS_LEASE_SECONDS": "3"}
    if settings.database_url is not None:
        env["OSMOSIS_DATABASE_URL"] = settings.database_url
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
    assert process.stdout is not None
    with process.stdout as output:
        address = output.readline().strip()
    assert address.startswith("http"), address
    return process, address


def get(address: str, run_id: str, headers: dict[str, str]) -> dict[str, Any]:
    return httpx.get(f"{address}/api/cli/eval-runs/{run_id}", headers=headers, trust_env=False).json()


def status(address: str, run_id: str, headers: dict[str, str]) -> str:
    return get(address, run_id, headers)["eval_run"]["status"]


def results(address: str, run_id: str, headers: dict[str, str]) -> dict[str, Any]:
    return get(address, run_id, headers)["results"]


def processes_of(run_id: str) -> list[int]:
    """Processes that have the run's folder on their command line or as their working folder."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if run_id in os.readlink(folder / "cwd") or run_id.encode() in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def wait(look: Any, timeout: float = 90.0) -> None:
    import time

    deadline = time.monotonic() + timeout
    while not look():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)

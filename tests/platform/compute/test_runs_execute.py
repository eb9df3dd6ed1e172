"""Runs execute to their end, whatever falls on the way."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest

from osmosis_platform.compute.supervisor import Supervisor
from osmosis_platform.jobs.runner import JobRunner


def test_a_run_finishes_and_leaves_nothing_behind(site: Any, alive: Any) -> None:
    run_id = site.submit()
    run = site.wait_for(run_id, "finished", "failed")
    assert run.status == "finished", site.log(run_id)
    assert (run.current_step, run.reward, run.error) == (4, 0.3, None)
    assert run.completed_at is not None
    assert run.run_token_hash is None, "the token ends with the run"
    log = site.log(run_id)
    assert "hello from the rollout" in log
    assert "worker life 1" in log
    site.until("clean folder", lambda: not site.folder(run_id).exists())


def test_secrets_reach_the_rollout_but_no_log(site: Any, script: Any) -> None:
    script(say="sesame-open-4711 and again sesame-open-4711")
    run_id = site.submit(
        env_config={"LEVEL": "INFO"},
        secrets={"required": ["A_KEY"], "provided": {"A_KEY": "sesame-open-4711"}},
    )
    assert site.wait_for(run_id, "finished", "failed").status == "finished", site.log(run_id)
    log = site.log(run_id)
    assert "the key is [A_KEY] and the level INFO" in log
    assert "worker life 1 [A_KEY] and again [A_KEY]" in log
    assert "sesame" not in log


@pytest.mark.slow
def test_a_killed_worker_goes_on_where_it_was(site: Any, script: Any, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    script(kill_self_at=1, steps=4, lives=1, wait_before={"3": str(gate)})
    run_id = site.submit()
    site.until(
        "second life", lambda: site.note(run_id, "lives") == "2" and site.run(run_id).current_step == 3
    )
    executed = site.note(run_id, "executed")
    gate.touch()
    run = site.wait_for(run_id, "finished", "failed")
    assert (run.status, run.restarts) == ("finished", 1), site.log(run_id)
    assert executed.split() in (["0", "1", "1", "2"], ["0", "1", "2"])


@pytest.mark.slow
def test_a_worker_that_always_crashes_ends_the_run(
    site: Any, script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("osmosis_platform.compute.executor.MAX_RESTARTS", 1)
    script(exit=9, steps=0, say="about to fall")
    run_id = site.submit()
    run = site.wait_for(run_id, "finished", "failed", "crashed")
    assert run.status == "crashed"
    assert "crashed 2 times without progress" in run.error
    assert "about to fall" in run.error


@pytest.mark.slow
def test_a_worker_says_why_the_run_failed(site: Any, script: Any) -> None:
    script(fail="the learning rate made the loss infinite", steps=1)
    run_id = site.submit()
    run = site.wait_for(run_id, "finished", "failed")
    assert (run.status, run.error, run.error_type) == (
        "failed",
        "the learning rate made the loss infinite",
        "scripted",
    )


def test_a_stop_lets_the_worker_save(site: Any, script: Any, tmp_path: Path) -> None:
    script(wait_before={"2": str(tmp_path / "never")})
    run_id = site.submit()
    site.until("two steps", lambda: site.run(run_id).current_step == 2)
    answer = site.client.post(f"/api/cli/training-runs/{run_id}/stop", json={})
    assert answer.json()["status"] == "stopping"
    assert site.wait_for(run_id, "stopped", "failed", "finished").status == "stopped"


@pytest.mark.slow
def test_a_fallen_rollout_server_is_started_again(site: Any, script: Any, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    script(wait_before={"1": str(gate)})
    run_id = site.submit()
    site.until("first step", lambda: site.run(run_id).current_step == 1)
    url = json.loads(site.note(run_id, "spec"))["rollout_url"]

    def instance() -> str | None:
        try:
            return httpx.get(f"{url}/health", trust_env=False).json()["instance_id"]
        except httpx.HTTPError:
            return None

    first = instance()
    for pid in children_with(b"_OSMOSIS_ROLLOUT_PORT="):
        os.kill(pid, signal.SIGKILL)
    site.until("another instance", lambda: instance() not in (None, first))
    gate.touch()
    assert site.wait_for(run_id, "finished", "failed").status == "finished", site.log(run_id)
    assert "it is started again" in site.log(run_id)


def children_with(variable: bytes) -> list[int]:
    """Our descendants that have an environment variable."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if variable in (folder / "environ").read_bytes() and is_ours(int(folder.name)):
                found.append(int(folder.name))
        except OSError:
            continue
    assert found
    return found


def is_ours(pid: int) -> bool:
    while pid > 1:
        if pid == os.getpid():
            return True
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return False


def test_an_entrypoint_that_does_not_import(site: Any, push_rollout: Any) -> None:
    push_rollout("import no_such_module_anywhere\n")
    run_id = site.submit()
    run = site.wait_for(run_id, "finished", "failed")
    assert run.status == "failed"
    assert run.error.startswith("Entrypoint does not import:")
    assert "no_such_module_anywhere" in run.error


@pytest.mark.slow
def test_a_rollout_server_that_does_not_start(site: Any, push_rollout: Any) -> None:
    source = Path(__file__).with_name("echo_rollout.py").read_text()
    push_rollout(
        source.replace(
            'if __name__ == "__main__":', 'if __name__ == "__main__":\n    raise SystemExit("no port for me")'
        )
    )
    run_id = site.submit()
    run = site.wait_for(run_id, "finished", "failed")
    assert run.status == "failed"
    assert "no port for me" in run.error


def test_a_stopping_platform_leaves_the_run_for_the_next_one(
    site: Any, script: Any, tmp_path: Path, alive: Any
) -> None:
    gate = tmp_path / "gate"
    script(wait_before={"2": str(gate)})
    run_id = site.submit()
    site.until("two steps", lambda: site.run(run_id).current_step == 2)
    worker = int(site.note(run_id, "pid"))
    assert site.runner.stop()
    assert site.run(run_id).status == "running"
    assert not alive(worker)
    site.platform.supervisor.close()

    gate.touch()
    old = site.supervisor
    supervisor = Supervisor(
        site.platform, api_url=old.api_url, environments=old.environments, worker_command=old._worker_command
    )
    site.platform.supervisor = site.supervisor = supervisor
    site.runner = JobRunner(site.platform, supervisor.work(), supervisor.threads())
    site.runner.start()
    assert site.wait_for(run_id, "finished", "failed").status == "finished", site.log(run_id)

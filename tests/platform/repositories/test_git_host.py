"""Clone, push, sync and refusal with the real git command over loopback HTTP."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from osmosis_platform.app import create_app
from osmosis_platform.context import Platform
from osmosis_platform.errors import NotFound
from osmosis_platform.repositories import service
from osmosis_platform.repositories.git import run_git
from osmosis_platform.repositories.models import SyncEvent

Git = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def address(platform: Platform) -> Iterator[str]:
    server = uvicorn.Server(uvicorn.Config(create_app(platform), port=0, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    deadline = time.monotonic() + 10
    while not server.started and time.monotonic() < deadline:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(10)


@pytest.fixture
def git(address: str, tmp_path: Path) -> Git:
    def run(*arguments: str, token: str | None, cwd: Path = tmp_path) -> subprocess.CompletedProcess[str]:
        env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "GIT_TERMINAL_PROMPT": "0"}
        if token:
            env |= {
                "GIT_CONFIG_COUNT": "1",
                "GIT_CONFIG_KEY_0": "http.extraHeader",
                "GIT_CONFIG_VALUE_0": f"Authorization: Bearer {token}",
            }
        return subprocess.run(
            ["git", "-c", "user.name=T", "-c", "user.email=t@example.com", *arguments],
            cwd=cwd,
            env=env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


@pytest.fixture
def repository(platform: Platform, town: Any) -> Any:
    platform.git.create("Acme/Agents")

    def tree(folder: Path) -> None:
        (folder / "rollouts" / "calc").mkdir(parents=True)
        (folder / "rollouts" / "calc" / "main.py").write_text("print(1)\n")
        (folder / "rollouts" / "calc" / "pyproject.toml").write_text('[project]\ndescription = "Sums"\n')

    folder = Path(platform.settings.data_dir) / "tree"
    folder.mkdir()
    tree(folder)
    (folder / "agent").symlink_to("rollouts/calc", target_is_directory=True)
    platform.git.commit_tree(
        "Acme/Agents", folder, branch="main", message="Start", author="A", email="a@example.com"
    )
    return town.repository


def sync_all(platform: Platform) -> list[SyncEvent]:
    with platform.database.read() as session:
        waiting = [s.id for s in session.query(SyncEvent).filter(SyncEvent.status == "pending")]
    for sync_id in waiting:
        service.sync_branch(platform, sync_id)
    with platform.database.read() as session:
        return list(session.query(SyncEvent).order_by(SyncEvent.created_at))


def test_push_is_synced_into_the_catalogue(
    platform: Platform, client: Any, town: Any, repository: Any, address: str, git: Git, tmp_path: Path
) -> None:
    url = f"{address}/git/acme/agents.git"
    assert git("clone", url, "work", token=town.max.token).returncode == 0
    work = tmp_path / "work"
    (work / "rollouts" / "second").mkdir()
    # Above 1 MiB git sends the pack chunked.
    (work / "rollouts" / "second" / "big.bin").write_bytes(os.urandom(3 * 1024 * 1024))
    git("add", "-A", token=None, cwd=work)
    git("commit", "-m", "Second rollout", token=None, cwd=work)
    pushed = git("push", "origin", "main:main", "main:feature", token=town.max.token, cwd=work)
    assert pushed.returncode == 0, pushed.stderr
    events = sync_all(platform)
    assert {(e.branch, e.status, e.rollouts_found) for e in events} == {
        ("main", "success", 2),
        ("feature", "success", 2),
    }
    assert {e.message for e in events} == {"Second rollout"}
    answer = client.get("/api/cli/rollouts", headers=town.max.scoped()).json()
    assert [(r["name"], r["description"]) for r in answer["rollouts"]] == [("calc", "Sums"), ("second", None)]
    assert git("push", "origin", ":feature", token=town.max.token, cwd=work).returncode == 0
    sync_all(platform)
    gone = client.get("/api/cli/rollouts?branch=feature", headers=town.max.scoped()).json()
    assert gone["rollouts"] == []


def test_strangers_and_bad_tokens_get_nothing(
    platform: Platform, town: Any, repository: Any, address: str, git: Git
) -> None:
    url = f"{address}/git/acme/agents.git"
    for token in (None, "nonsense", town.eve.token):
        done = git("clone", url, "stolen", token=token)
        assert done.returncode != 0
        assert "nonsense" not in done.stderr
    assert git("clone", f"{address}/git/acme/../agents.git", "x", token=town.max.token).returncode != 0


def test_a_commit_is_resolved_once_and_exported(platform: Platform, repository: Any, tmp_path: Path) -> None:
    sha, branch = service.resolve_commit(platform, repository, branch=None, commit_sha=None)
    assert (len(sha), branch) == (40, "main")
    assert service.resolve_commit(platform, repository, branch=None, commit_sha=sha[:8]) == (sha, None)
    with pytest.raises(NotFound, match="branch nope was not found"):
        service.resolve_commit(platform, repository, branch="nope", commit_sha=None)
    with pytest.raises(NotFound, match="push it first"):
        service.resolve_commit(platform, repository, branch=None, commit_sha="0" * 40)
    platform.git.export("Acme/Agents", sha, "rollouts/calc", tmp_path / "out")
    assert (tmp_path / "out" / "main.py").read_text() == "print(1)\n"
    with pytest.raises(NotFound, match="rollouts/none"):
        platform.git.export("Acme/Agents", sha, "rollouts/none", tmp_path / "none")
    entry = run_git("ls-tree", sha, "agent", cwd=platform.git.path("Acme/Agents"))
    assert entry.startswith(b"120000 ")  # a link stays one

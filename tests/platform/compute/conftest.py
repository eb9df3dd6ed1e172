"""A platform whose runs really execute: real HTTP, real processes, a real rollout server; the workers are scripted."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from osmosis_ai.environments.build import BuildOptions
from osmosis_platform.app import create_app
from osmosis_platform.compute.environments import Environment
from osmosis_platform.compute.supervisor import Supervisor
from osmosis_platform.context import Platform
from osmosis_platform.jobs.runner import JobRunner
from osmosis_platform.runs.models import LogLine, Run

REPOSITORY = Path(__file__).resolve().parents[3]
WORKER = Path(__file__).with_name("scripted_worker.py")

ROLLOUT = Path(__file__).with_name("echo_rollout.py").read_text()


@dataclass
class ThisEnvironment:
    """The environment of the tests themselves stands in for one built by uv."""

    def use(self, project: Path, options: BuildOptions, say: Callable[[str], None]) -> Any:
        @contextmanager
        def context() -> Iterator[Environment]:
            folders = (Path(sys.prefix), Path(sys.base_prefix), REPOSITORY / "packages")
            yield Environment(Path(sys.prefix) / "bin" / "python", folders)

        return context()


def until[T](what: str, look: Callable[[], T], timeout: float = 60.0) -> T:
    """Wait for a truthy answer."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        found = look()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"{what} did not happen in {timeout:.0f} s")


@dataclass
class Site:
    """A running platform with everything to submit runs and look at them."""

    platform: Platform
    workshop: Any
    client: httpx.Client
    supervisor: Supervisor
    runner: JobRunner

    def until[T](self, what: str, look: Callable[[], T], timeout: float = 60.0) -> T:
        """Wait for a truthy answer."""
        return until(what, look, timeout)

    def submit(self, kind: str = "training", model: str = "tiny/model", **sections: Any) -> str:
        """Submit a run; returns its id."""
        body = self.workshop.body(model, **sections)
        answer = self.client.post(f"/api/cli/{kind}-runs", json=body)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    def run(self, run_id: str) -> Run:
        """The run's row now."""
        with self.platform.database.read() as session:
            return session.get_one(Run, run_id)

    def log(self, run_id: str) -> str:
        """The whole log."""
        with self.platform.database.read() as session:
            lines = session.query(LogLine).where(LogLine.owner_id == run_id).order_by(LogLine.sequence)
            return "\n".join(line.message for line in lines)

    def wait_for(self, run_id: str, *statuses: str, timeout: float = 90.0) -> Run:
        """Wait until the run has one of the statuses."""

        def look() -> Run | None:
            run = self.run(run_id)
            return run if run.status in statuses else None

        try:
            return until(f"run {'/'.join(statuses)}", look, timeout)
        except AssertionError as error:
            raise AssertionError(
                f"{error}; it is {self.run(run_id).status}; log:\n{self.log(run_id)}"
            ) from None

    def folder(self, run_id: str) -> Path:
        """The run's folder."""
        return self.platform.settings.data_dir / "runs" / run_id

    def note(self, run_id: str, name: str) -> str | None:
        """A file that the scripted worker left in its work folder."""
        path = self.folder(run_id) / "work" / name
        return path.read_text() if path.exists() else None


def push(platform: Platform, workshop: Any, tmp_path: Path, source: str) -> None:
    """Make `source` the entrypoint of the rollout at the head of main."""
    from osmosis_platform.repositories.git import run_git

    work = tmp_path / f"push-{time.monotonic_ns()}"
    run_git("clone", "--quiet", str(platform.git.path("Acme/Agents")), str(work))
    (work / "rollouts" / "echo" / "main.py").write_text(source)
    run_git(
        "-c", "user.name=Ada", "-c", "user.email=a@example.com", "commit", "--quiet", "-am", "Next", cwd=work
    )
    run_git("push", "--quiet", "origin", "HEAD:main", cwd=work)


@pytest.fixture
def push_rollout(platform: Platform, workshop: Any, tmp_path: Path) -> Callable[[str], None]:
    return lambda source: push(platform, workshop, tmp_path, source)


@pytest.fixture
def address(platform: Platform) -> Iterator[str]:
    """The platform's API on a real port."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(create_app(platform), log_level="warning", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = True
    thread.join(10)
    listener.close()


@pytest.fixture
def site(
    platform: Platform, workshop: Any, address: str, push_rollout: Any, tmp_path: Path
) -> Iterator[Site]:
    push_rollout(ROLLOUT)
    script = tmp_path / "script.json"
    script.write_text("{}")
    supervisor = Supervisor(
        platform,
        api_url=address,
        environments=ThisEnvironment(),
        worker_command=lambda kind: [sys.executable, str(WORKER), str(script)],
        inference_command=[sys.executable, str(WORKER.with_name("scripted_inference.py"))],
    )
    platform.supervisor = supervisor
    runner = JobRunner(platform, supervisor.work(), supervisor.threads())
    runner.start()
    with httpx.Client(
        base_url=address, headers=workshop.town.ada.scoped(), trust_env=False, timeout=60
    ) as client:
        site = Site(platform, workshop, client, supervisor, runner)
        yield site
        site.runner.stop()
        platform.supervisor.close()


@pytest.fixture
def script(site: Site, tmp_path: Path) -> Callable[..., None]:
    """Say what the next workers do; see scripted_worker.py."""

    def write(**steps: Any) -> None:
        (tmp_path / "script.json").write_text(json.dumps(steps))

    return write


@pytest.fixture
def alive() -> Callable[[int], bool]:
    """Whether a process exists and is no zombie."""

    def look(pid: int) -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except FileNotFoundError:
            return False

    assert look(os.getpid())
    return look

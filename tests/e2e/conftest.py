"""A whole deployment in its own folder: real platform process, real workers, real sandboxed rollout servers, the real tiny model."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from osmosis_platform.accounts.service import create_user
from osmosis_platform.accounts.tokens import create_token
from osmosis_platform.context import open_platform
from osmosis_platform.repositories.service import create_repository
from osmosis_platform.settings import Settings
from osmosis_platform.workspaces.service import create_workspace

PROBE = Path(__file__).with_name("probe_rollout.py")
PYPROJECT = """[project]
name = "probe"
version = "0.1.0"
requires-python = ">=3.12"
dependencies = ["osmosis-ai[server]>=0.3.0,<0.4"]

[tool.setuptools]
py-modules = ["main"]
"""
MARKS = {
    "platform": ["osmosis_platform.main", "serve"],
    "eval worker": ["osmosis_ai.eval.worker"],
    "training worker": ["osmosis_trainer", "train"],
    "inference server": ["osmosis_trainer", "serve"],
    "rollout server": ["main.py"],
}


def until[T](
    what: str, look: Callable[[], T], timeout: float = 120.0, explain: Callable[[], str] = lambda: ""
) -> T:
    """Wait for a truthy answer; `explain` says what else is known when it does not come."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        found = look()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"{what} did not happen in {timeout:.0f} s\n{explain()}")


class Recorder:
    """Notes every execution that a rollout reports, with the time of its start."""

    def __init__(self) -> None:
        self.executions: list[dict[str, Any]] = []
        recorder = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                recorder.executions.append({**body, "started": time.time()})
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class Deployment:
    """A platform process over one folder that may be killed and started again."""

    def __init__(self, folder: Path, write_tree: Callable[[Path], None] | None = None) -> None:
        self.folder = folder
        self._write_tree = write_tree or _write_tree
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.settings = Settings(data_dir=folder / "data", port=self.port)
        self.process: subprocess.Popen[bytes] | None = None
        self.token = self._prepare()
        self.client = httpx.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {self.token}", "X-Osmosis-Workspace": "acme"},
            timeout=30,
            trust_env=False,
        )

    def _prepare(self) -> str:
        platform = open_platform(self.settings)
        try:
            with platform.database.write() as session:
                user = create_user(session, email="ada@example.com", name="Ada")
                workspace = create_workspace(session, name="acme", owner=user)
                create_repository(
                    session, platform, workspace, "agents", author=user, write_tree=self._write_tree
                )
                return create_token(session, user.id, name="test")[1]
        finally:
            platform.close()

    def start(self) -> None:
        with (self.folder / "platform.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "osmosis_platform.main", "serve", "--data", str(self.settings.data_dir), "--port", str(self.port)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        until("the platform is ready", self._ready, 90)

    def _ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "platform.log").read_text()[-3000:]
        try:
            return self.client.get("/health").status_code == 200
        except httpx.TransportError:
            return False

    def pids(self, what: str) -> list[int]:
        """Processes of this deployment of one kind."""
        assert self.process is not None
        family, found = _descendants(self.process.pid), []
        for pid, command in family.items():
            if all(mark in command for mark in MARKS[what]):
                found.append(pid)
        return found

    def kill(self, what: str) -> bool:
        """SIGKILL every process of a kind; a killed platform is started again. False when there was none."""
        pids = self.pids(what)
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        if what == "platform":
            assert self.process is not None
            self.process.wait(10)
            self.start()
        return bool(pids)

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
        self.client.close()

    def get(self, path: str) -> dict[str, Any]:
        answer = self.client.get(path)
        assert answer.status_code == 200, answer.text
        body: dict[str, Any] = answer.json()
        return body

    def upload(self, name: str, content: bytes) -> None:
        body = {"file_name": name, "file_size": len(content), "extension": "jsonl"}
        dataset = self.client.post("/api/cli/datasets", json=body).json()
        assert (
            httpx.put(dataset["upload"]["presigned_url"], content=content, trust_env=False).status_code == 200
        )
        self.client.post(f"/api/cli/datasets/{dataset['id']}/complete", json={"file_extension": "jsonl"})
        until(
            f"dataset {name} is processed",
            lambda: self.get(f"/api/cli/datasets/{name}")["status"] == "uploaded",
        )

    def submit(self, kind: str, **sections: Any) -> str:
        experiment = {
            "rollout": "probe",
            "entrypoint": "main.py",
            "model_path": "osmosis/tiny-multiply",
            "dataset": "rows",
            **sections.pop("experiment_config", {}),
        }
        answer = self.client.post(f"/api/cli/{kind}-runs", json={"experiment_config": experiment, **sections})
        assert answer.status_code in (200, 201), answer.text
        return str(answer.json()["id"])

    def logs(self, kind: str, run_id: str) -> str:
        lines = self.get(f"/api/cli/{kind}-runs/{run_id}/logs?limit=200&direction=older")["logs"]
        return "\n".join(f"{line['step']:>8} {line['message']}" for line in lines)


def _descendants(root: int) -> dict[int, list[str]]:
    parents, commands = {}, {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text()
            commands[int(entry.name)] = (entry / "cmdline").read_text().split("\0")
            parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
        except OSError:
            continue
    family, frontier = {root}, {root}
    while frontier:
        frontier = {pid for pid, parent in parents.items() if parent in frontier}
        family |= frontier
    return {pid: commands[pid] for pid in family if pid in commands}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _write_tree(folder: Path) -> None:
    rollout = folder / "rollouts" / "probe"
    rollout.mkdir(parents=True)
    (rollout / "main.py").write_text(PROBE.read_text())
    (rollout / "pyproject.toml").write_text(PYPROJECT)


@pytest.fixture(name="until", scope="session")
def until_fixture() -> Callable[..., Any]:
    return until


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    recorder = Recorder()
    yield recorder
    recorder.close()


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    deployment = Deployment(tmp_path)
    deployment.start()
    yield deployment
    deployment.stop()


@pytest.fixture(scope="session")
def make_deployment() -> Callable[..., Deployment]:
    """For tests that share one deployment or prepare its folder; it is neither started nor stopped for them."""
    return Deployment

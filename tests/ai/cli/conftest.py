"""A platform on loopback that answers what a test tells it, a workspace directory, and a way to run the program."""

import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from osmosis_ai.cli.main import main

API = "/api/cli"


@dataclass
class Received:
    method: str
    path: str  # percent-encoded, below /api/cli for API calls
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Answer:
    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    content: bytes | None = None


class FakePlatform:
    """Routes are `(method, path)`; a list of answers is used up one by one, its last one stays."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.reset()

    def reset(self) -> None:
        self.requests: list[Received] = []
        self.routes: dict[tuple[str, str], list[Answer | Callable[[Received], Answer]]] = {}

    def on(self, method: str, path: str, body: Any = None, *, status: int = 200, **more: Any) -> None:
        """Answer a call; a second `on` for the same route adds the next answer. `body` may be a function."""
        answer = body if callable(body) else Answer(status, body, **more)
        self.routes.setdefault((method, path), []).append(answer)

    def page(self, path: str, key: str, items: list[dict[str, Any]], **more: Any) -> None:
        """A list that fits on one page."""
        body = {key: items, "total_count": len(items), "has_more": False, "next_offset": None, **more}
        self.on("GET", path, body)

    def calls(self) -> list[str]:
        return [f"{request.method} {request.path}" for request in self.requests]

    def answer(self, request: Received) -> Answer:
        self.requests.append(request)
        queue = self.routes.get((request.method, request.path))
        if not queue:
            return Answer(404, {"error": f"no route {request.method} {request.path}", "code": "NO_ROUTE"})
        chosen = queue.pop(0) if len(queue) > 1 else queue[0]
        return chosen(request) if callable(chosen) else chosen


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    platform: FakePlatform

    def _handle(self) -> None:
        parts = urlsplit(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        request = Received(
            self.command,
            parts.path.removeprefix(API),
            dict(parse_qsl(parts.query)),
            {name.lower(): value for name, value in self.headers.items()},
            self.rfile.read(length),
        )
        answer = self.platform.answer(request)
        content = (
            answer.content
            if answer.content is not None
            else b""
            if answer.body is None
            else json.dumps(answer.body).encode()
        )
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_DELETE = _handle

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="session")
def _server() -> Iterator[FakePlatform]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    platform = _Handler.platform = FakePlatform(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield platform
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def platform(_server: FakePlatform) -> FakePlatform:
    _server.reset()
    return _server


@pytest.fixture(autouse=True)
def _clean_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An own home folder, no OSMOSIS_* variables, UTC; whatever a `.env` file set is forgotten afterwards."""
    before = dict(os.environ)
    for name in [name for name in os.environ if name.startswith("OSMOSIS_")]:
        del os.environ[name]
    home = tmp_path / "home"
    home.mkdir()
    os.environ |= {
        "HOME": str(home),
        "TZ": "UTC",
        "NO_COLOR": "1",
        "COLUMNS": "200",
        "GIT_CONFIG_GLOBAL": "/dev/null",
    }
    monkeypatch.chdir(home)
    yield
    os.environ.clear()
    os.environ.update(before)


@dataclass
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.out.count("\n") == 1, self.out or self.err
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        lines = self.err.splitlines()
        assert lines, "no error line"
        return json.loads(lines[-1])["error"]


@pytest.fixture
def osmosis(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Run the program in this process: `osmosis("dataset", "list", "--json")`."""

    def run(*arguments: str) -> Ran:
        capsys.readouterr()
        code = main(list(arguments))
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run


def _git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=T", "-c", "user.email=t@example.com", "-c", "init.defaultBranch=main"]
    answer = subprocess.run(
        ["git", *identity, *arguments], cwd=folder, capture_output=True, text=True, check=True
    )
    return answer.stdout.strip()


@pytest.fixture
def git() -> Callable[..., str]:
    return _git


@pytest.fixture(scope="session")
def _workspace_seed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A committed workspace directory, copied for each test: cheaper than running git again."""
    folder = tmp_path_factory.mktemp("seed") / "space"
    for name in ("rollouts/calc", "configs/training", "configs/eval", "data"):
        (folder / name).mkdir(parents=True)
    for name in ("AGENTS.md", "CLAUDE.md", "configs/AGENTS.md"):
        (folder / name).write_text("x")
    (folder / "rollouts/calc/main.py").write_text("")
    _git(folder, "init", "-q", "--template=")
    _git(folder, "remote", "add", "origin", "https://github.com/Team/Space.git")
    _git(folder, "add", ".")
    _git(folder, "commit", "-qm", "seed")
    return folder


@pytest.fixture
def bare_workspace(_workspace_seed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder is a workspace directory; nobody is logged in."""
    import shutil

    folder = tmp_path / "space"
    shutil.copytree(_workspace_seed, folder)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def workspace(bare_workspace: Path, platform: FakePlatform, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder is a workspace directory, and a token for the fake platform is set."""
    monkeypatch.setenv("OSMOSIS_PLATFORM_URL", platform.url)
    monkeypatch.setenv("OSMOSIS_TOKEN", "env-token")
    return bare_workspace


@pytest.fixture
def context(bare_workspace: Path) -> dict[str, Any]:
    """The keys that most results of a command in the workspace carry."""
    return {
        "git": {"identity": "team/space", "remote_url": "https://github.com/Team/Space.git"},
        "workspace_directory": str(bare_workspace),
    }

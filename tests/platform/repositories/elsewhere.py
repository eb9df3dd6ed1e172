"""Another git host on loopback: bare repositories behind `git http-backend`, some of them private."""

from __future__ import annotations

import base64
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from osmosis_platform.repositories.git import git_environment, run_git

WHO = {name: "t@example.com" if "EMAIL" in name else "Tess" for name in (
    "GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL")}  # fmt: skip


class Elsewhere:
    """`token` is what it asks for, or None; `seen` are the Authorization headers it got; `moved` makes it send everybody elsewhere."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.token: str | None = None
        self.moved = False
        self.seen: list[str] = []
        self.requests = 0
        self.port = 0

    def url(self, full_name: str) -> str:
        return f"http://127.0.0.1:{self.port}/{full_name}.git"

    def work(self, full_name: str) -> Path:
        """A checkout of a new repository, on branch `main`."""
        bare, work = self.folder / f"{full_name}.git", self.folder / f"{full_name}-work"
        run_git("init", "--quiet", "--bare", "--initial-branch=main", str(bare))
        run_git("init", "--quiet", "--initial-branch=main", str(work))
        run_git("remote", "add", "origin", str(bare), cwd=work)
        return work

    def push(self, work: Path, rollout: str, *, branch: str = "main") -> str:
        """Commit a rollout of this name and push the branch; returns the commit."""
        folder = work / "rollouts" / rollout
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "main.py").write_text("print(1)\n")
        run_git("add", "--all", cwd=work)
        run_git("commit", "--quiet", "--message", f"Add {rollout}", cwd=work, extra=WHO)
        run_git("push", "--quiet", "--force", "origin", f"HEAD:refs/heads/{branch}", cwd=work)
        return run_git("rev-parse", "HEAD", cwd=work).decode().strip()


@contextmanager
def serving(folder: Path) -> Iterator[Elsewhere]:
    """The host, until the block ends."""
    host = Elsewhere(folder)
    backend = run_git("--exec-path").decode().strip() + "/git-http-backend"

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer(b"")

        def do_POST(self) -> None:
            self.answer(self.rfile.read(int(self.headers.get("Content-Length") or 0)))

        def answer(self, body: bytes) -> None:
            host.requests += 1
            given = self.headers.get("Authorization", "")
            if given:
                host.seen.append(base64.b64decode(given.removeprefix("Basic ")).decode())
            if host.moved:
                self.send_response(301)
                self.send_header("Location", host.url("new/place"))
                self.end_headers()
                return
            if host.token is not None and not given.startswith("Basic "):
                self.refuse()
                return
            if host.token is not None and host.seen[-1].partition(":")[2] != host.token:
                self.refuse()
                return
            path, _, query = self.path.partition("?")
            done = subprocess.run([backend], input=body, capture_output=True, check=False, env={
                **git_environment(), "GIT_PROJECT_ROOT": str(folder), "GIT_HTTP_EXPORT_ALL": "1", "PATH_INFO": path,
                "QUERY_STRING": query, "REQUEST_METHOD": self.command, "CONTENT_LENGTH": str(len(body)),
                "CONTENT_TYPE": self.headers.get("Content-Type", ""), "PATH": os.environ["PATH"],
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
                "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            })  # fmt: skip
            head, _, content = done.stdout.partition(b"\r\n\r\n")
            lines = dict(line.split(": ", 1) for line in head.decode().splitlines())
            self.send_response(int(lines.pop("Status", "200").split()[0]))
            for name, value in lines.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def refuse(self) -> None:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="elsewhere"')
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    host.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield host
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

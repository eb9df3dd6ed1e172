"""A rollout server in a process of its own, listening on a socket its parent opened, and dying with the parent."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from starlette.responses import PlainTextResponse

_ROOT = Path(__file__).resolve().parents[2]
_START_TIMEOUT_S = 60.0


def serve(app: Any) -> None:
    """Serve `app` on the inherited socket whose number is the first argument, until stdin closes."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    listener = socket.socket(fileno=int(sys.argv[1]))
    config = uvicorn.Config(_Metered(app), log_level="error", access_log=False)
    uvicorn.Server(config).run(sockets=[listener])


class _Metered:
    """Answers GET /cpu-seconds with what this process has spent; everything else is the app's."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope.get("path") == "/cpu-seconds":
            await PlainTextResponse(str(time.process_time()))(scope, receive, send)
        else:
            await self._app(scope, receive, send)


def cpu_seconds(url: str) -> float:
    """CPU-seconds of the server at `url` since it started."""
    return float(httpx.get(f"{url}/cpu-seconds", trust_env=False).raise_for_status().text)


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


@contextmanager
def running(
    module: str, artifacts: Path, *, python: Path | str = sys.executable, arguments: Sequence[str] = ()
) -> Iterator[str]:
    """Run `python -m module` and yield its URL once it answers GET /health."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    environment = {**os.environ, "_OSMOSIS_ROLLOUT_ARTIFACT_ROOT": str(artifacts)}
    process = subprocess.Popen(
        [str(python), "-m", module, str(listener.fileno()), *arguments],
        cwd=_ROOT,
        env=environment,
        stdin=subprocess.PIPE,
        pass_fds=[listener.fileno()],
    )
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    listener.close()
    try:
        _wait_until_healthy(url, process)
        yield url
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(timeout=10)


def _wait_until_healthy(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    with httpx.Client(trust_env=False, timeout=_START_TIMEOUT_S) as client:
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise RuntimeError(f"the rollout server ended with status {process.returncode} at its start")
            try:
                client.get(f"{url}/health").raise_for_status()
                return
            except httpx.TransportError:
                time.sleep(0.02)
    raise RuntimeError(f"the rollout server at {url} did not answer within {_START_TIMEOUT_S:g} s")

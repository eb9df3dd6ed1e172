"""`kill -9` in the middle of an upload or a download: the next command transfers only what is missing."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from osmosis_ai.platform.api.download import partial_path
from osmosis_platform.app import create_app
from osmosis_platform.context import Platform
from osmosis_platform.datasets import service
from osmosis_platform.datasets.models import Dataset
from osmosis_platform.storage import uploads

PART = 64 * 1024
PARTS = 12
PATIENCE_S = 60


def until(what: str, holds: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


class Gate:
    """The platform behind a gate: after `limit` parts no more parts come in, after `limit` bytes of a blob no more go out."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self.limit: int | None = None
        self.parts: list[int] = []  # parts that were answered
        self.ranges: list[str | None] = []
        self.held = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope.get("path", "")
        if path.startswith("/uploads/"):
            parts = self.parts  # of this command: what was held until the next one does not count for that
            if self.limit is not None and len(parts) >= self.limit:
                await self._hold()
            await self._app(scope, receive, send)
            parts.append(int(path.rsplit("/", 1)[1]))
        elif path.startswith("/blobs/"):
            self.ranges.append(dict(scope["headers"]).get(b"range", b"").decode() or None)
            await self._app(scope, receive, self._counted(send))
        else:
            await self._app(scope, receive, send)

    def _counted(self, send: Any) -> Any:
        sent = 0

        async def counting(message: Any) -> None:
            nonlocal sent
            sent += len(message.get("body", b""))
            if self.limit is not None and sent > self.limit:
                await self._hold()
            await send(message)

        return counting

    async def _hold(self) -> None:
        self.held = True
        while self.limit is not None:  # noqa: ASYNC110 - set from another thread
            await asyncio.sleep(0.02)

    def open(self) -> None:
        self.limit, self.held, self.parts, self.ranges = None, False, [], []


@pytest.fixture
def gate(platform: Platform) -> Iterator[Gate]:
    gate = Gate(create_app(platform))
    server = uvicorn.Server(uvicorn.Config(gate, port=0, log_level="warning", lifespan="off"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until("the server starts", lambda: server.started)
    port = server.servers[0].sockets[0].getsockname()[1]
    platform.urls.base_url = f"http://127.0.0.1:{port}"
    yield gate
    gate.open()
    server.should_exit = True
    thread.join(PATIENCE_S)


@pytest.fixture
def osmosis(
    platform: Platform, gate: Gate, town: Any, tmp_path: Path
) -> Callable[..., subprocess.Popen[str]]:
    """Starts the command in a workspace directory, as max."""
    folder = tmp_path / "space"
    for name in ("rollouts", "configs/eval", "configs/training", "data"):
        (folder / name).mkdir(parents=True)
    git = ["git", "-C", str(folder)]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "remote", "add", "origin", "https://github.com/acme/agents.git"], check=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OSMOSIS_")}
    environment |= {
        "HOME": str(tmp_path),
        "OSMOSIS_PLATFORM_URL": platform.urls.base_url,
        "OSMOSIS_TOKEN": town.max.token,
        "GIT_CONFIG_GLOBAL": "/dev/null",
    }

    def start(*arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "osmosis_ai.cli.main", *arguments, "--json"],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


def finish(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    answer: dict[str, Any] = json.loads(out)
    return answer


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=PATIENCE_S)


@pytest.fixture
def content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """A dataset of twelve small parts."""
    monkeypatch.setattr(service, "PART_SIZE", PART)
    monkeypatch.setattr(service, "plan_parts", lambda size, part=PART: uploads.plan_parts(size, part))
    rows, size = [], 0
    while size < PART * (PARTS - 0.5):
        row = {"system_prompt": "s", "user_prompt": f"{len(rows)} " + "q" * 500, "ground_truth": "1"}
        rows.append(json.dumps(row) + "\n")
        size += len(rows[-1])
    return "".join(rows).encode()


def test_an_upload_that_was_killed_sends_only_what_is_missing(
    platform: Platform, gate: Gate, osmosis: Any, content: bytes, tmp_path: Path
) -> None:
    file = tmp_path / "space/data/train.jsonl"
    file.write_bytes(content)
    gate.limit = 5
    process = osmosis("dataset", "upload", "data/train.jsonl", "--yes")
    until("some parts are there and others wait", lambda: gate.held and len(gate.parts) >= 5)
    kill(process)
    there = set(gate.parts)
    gate.open()
    answer = finish(osmosis("dataset", "upload", "data/train.jsonl", "--yes"))
    assert set(gate.parts).isdisjoint(there)
    assert len(gate.parts) == len(set(gate.parts))
    service.process(platform, answer["resource"]["id"])
    with platform.database.read() as session:
        dataset = session.get_one(Dataset, answer["resource"]["id"])
        assert (dataset.status, dataset.row_count) == ("uploaded", content.count(b"\n"))
        assert dataset.source_sha256 is not None
        assert platform.blobs.read_bytes(dataset.source_sha256) == content
        assert session.query(Dataset).count() == 1


def test_parts_of_a_file_that_was_changed_are_sent_again(
    platform: Platform, gate: Gate, osmosis: Any, content: bytes, tmp_path: Path
) -> None:
    file = tmp_path / "space/data/train.jsonl"
    file.write_bytes(content)
    gate.limit = 5
    process = osmosis("dataset", "upload", "data/train.jsonl", "--yes")
    until("some parts are there and others wait", lambda: gate.held and len(gate.parts) >= 5)
    kill(process)
    there = set(gate.parts)
    changed = content.replace(b"qqqqq", b"rrrrr")
    file.write_bytes(changed)
    gate.open()
    answer = finish(osmosis("dataset", "upload", "data/train.jsonl", "--yes"))
    assert there <= set(gate.parts)
    service.process(platform, answer["resource"]["id"])
    with platform.database.read() as session:
        source = session.get_one(Dataset, answer["resource"]["id"]).source_sha256
        assert source is not None
        assert platform.blobs.read_bytes(source) == changed


def test_a_download_that_was_killed_goes_on(
    platform: Platform, gate: Gate, osmosis: Any, town: Any, tmp_path: Path
) -> None:
    row = json.dumps({"system_prompt": "s", "user_prompt": "q" * 1000, "ground_truth": "1"}) + "\n"
    content = (row * 20_000).encode()
    stored = platform.blobs.put_bytes(content)
    with platform.database.write() as session:
        session.add(
            Dataset(
                workspace_id=town.acme.id,
                name="train",
                extension="jsonl",
                file_size=len(content),
                status="uploaded",
                source_sha256=stored.sha256,
                creator_id=town.max.user.id,
            )
        )
    target = tmp_path / "space/train.jsonl"
    partial = partial_path(target)
    gate.limit = 6 * 1024 * 1024
    process = osmosis("dataset", "download", "train")
    until("a part is there", lambda: gate.held and partial.exists() and partial.stat().st_size >= 2**20)
    kill(process)
    assert not target.exists()
    there = partial.stat().st_size
    gate.open()
    finish(osmosis("dataset", "download", "train"))
    assert gate.ranges == [f"bytes={there}-"]
    assert target.read_bytes() == content
    assert not partial.exists()

"""The command: serve in a real process, and first setup without a browser."""

from __future__ import annotations

import io
import json
import logging
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from osmosis_platform.errors import InvalidInput
from osmosis_platform.main import main

Start = Callable[..., subprocess.Popen[str]]
COMMAND = [sys.executable, "-m", "osmosis_platform.main"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    children: list[subprocess.Popen[str]] = []

    def run(*options: str, data: str = "data") -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [*COMMAND, "serve", "--data", str(tmp_path / data), *options], stderr=subprocess.PIPE, text=True
        )
        children.append(child)
        return child

    yield run
    for child in children:
        child.kill()
        child.wait()
        if child.stderr is not None:
            child.stderr.close()


def identity(folder: Path, child: subprocess.Popen[str]) -> dict[str, Any]:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert child.poll() is None, child.stderr and child.stderr.read()
        path = folder / "platform.json"
        if path.exists():
            content: dict[str, Any] = json.loads(path.read_text())
            if content["pid"] == child.pid:
                return content
        time.sleep(0.02)
    raise AssertionError("the platform did not become ready")


def test_serve_answers_and_ends_cleanly(start: Start, tmp_path: Path) -> None:
    child = start("--port", "0", "--public-url", "https://osmosis.example/")
    found = identity(tmp_path / "data", child)
    assert found["url"] == "https://osmosis.example"
    assert httpx.get(f"http://127.0.0.1:{found['port']}/health").json()["ready"] is True
    login = httpx.post(f"http://127.0.0.1:{found['port']}/api/cli/device/authorize", json={}).json()
    assert login["verification_uri"] == "https://osmosis.example/device"

    second = start("--port", str(found["port"]), data="other")
    assert second.wait(60) == 1
    assert second.stderr is not None
    text = second.stderr.read()
    assert len(text.splitlines()) == 1
    assert f"port {found['port']}" in text

    same = start("--port", "0")
    assert same.wait(60) == 1
    assert same.stderr is not None
    assert f"pid {child.pid}" in same.stderr.read()

    both = start("--port", str(found["port"]))
    assert both.wait(60) == 1
    assert both.stderr is not None
    text = both.stderr.read()
    assert len(text.splitlines()) == 1
    assert f"port {found['port']}" in text
    assert f"pid {child.pid}" in text

    child.send_signal(signal.SIGTERM)
    assert child.wait(60) == 0
    assert not (tmp_path / "data" / "platform.json").exists()
    assert child.stderr is not None
    log = child.stderr.read()
    assert f"is ready at {found['url']}" in log
    assert "Traceback" not in log


def admin(capsys: pytest.CaptureFixture[str], folder: Path, *words: str) -> dict[str, Any]:
    assert main(["admin", *words, "--data", str(folder), "--json"]) == 0
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


@pytest.fixture
def folder(
    tmp_path: Path, empty_folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> Iterator[Path]:
    """A data folder as the first start leaves it."""
    monkeypatch.delenv("OSMOSIS_PASSWORD", raising=False)
    shutil.copytree(empty_folder, tmp_path / "data")
    handlers, level = logging.root.handlers[:], logging.root.level
    yield tmp_path / "data"
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)
    logging.captureWarnings(False)


def test_first_setup(
    capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("from stdin\n"))
    user = admin(capsys, folder, "create-user", "Ada@example.com", "--password-stdin")
    assert (user["email"], user["name"], "password" in user) == ("ada@example.com", "Ada", False)
    monkeypatch.setenv("OSMOSIS_PASSWORD", "from environment")
    assert "password" not in admin(capsys, folder, "create-user", "max@example.com", "--name", "Max")
    monkeypatch.delenv("OSMOSIS_PASSWORD")
    assert len(admin(capsys, folder, "set-password", "max@example.com")["password"]) == 16
    made = admin(
        capsys, folder, "create-workspace", "acme", "--owner", "ada@example.com", "--repository", "agents"
    )
    assert made["clone_url"] == "http://127.0.0.1:8400/git/acme/agents.git"
    assert (
        admin(capsys, folder, "add-member", "acme", "max@example.com", "--role", "admin")["role"] == "admin"
    )
    assert admin(capsys, folder, "create-token", "ada@example.com", "--days", "1")["token"].startswith("osm_")
    assert admin(capsys, folder, "create-api-key", "acme", "--user", "max@example.com")["key"]
    assert len(admin(capsys, folder, "rotate-keys")["dropped"]) == 1
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_relative_folder_works_from_where_the_command_is_called(
    capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent)
    admin(capsys, Path("data"), "create-user", "ada@example.com")
    made = admin(
        capsys,
        Path("data"),
        "create-workspace",
        "acme",
        "--owner",
        "ada@example.com",
        "--repository",
        "agents",
    )
    assert made["repository"] == "acme/agents"
    assert (folder / "git" / "acme" / "agents.git").is_dir()


def test_a_workspace_whose_repository_fails_is_not_half_there(
    capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_folder: Path) -> None:
        raise InvalidInput("the template is broken")

    monkeypatch.setattr("osmosis_platform.admin.write_workspace", broken)
    admin(capsys, folder, "create-user", "ada@example.com")
    words = ["create-workspace", "acme", "--owner", "ada@example.com", "--repository", "agents"]
    assert main(["admin", *words, "--data", str(folder)]) == 1
    assert "the template is broken" in capsys.readouterr().err
    assert list((folder / "git").rglob("*.git")) == []
    monkeypatch.undo()
    assert admin(capsys, folder, *words)["repository"] == "acme/agents"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["create-user", "nobody"], "e-mail"),
        (["create-workspace", "acme", "--owner", "a@b.c"], "no account for a@b.c"),
        (["create-token", "a@b.c"], "no account for a@b.c"),
        (["create-api-key", "acme", "--user", "a@b.c"], "no workspace named acme"),
    ],
)
def test_errors_are_one_sentence(
    capsys: pytest.CaptureFixture[str], folder: Path, words: list[str], text: str
) -> None:
    assert main(["admin", *words, "--data", str(folder)]) == 1
    error = capsys.readouterr().err
    assert text in error
    assert len(error.splitlines()) == 1


def test_bad_setting_is_one_sentence(
    capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OSMOSIS_SANDBOX", "perhaps")
    assert main(["admin", "create-token", "a@b.c", "--data", str(folder)]) == 1
    error = capsys.readouterr().err
    assert "sandbox" in error
    assert len(error.splitlines()) == 1


def test_a_folder_without_a_name_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["serve", "--data", ""])
    assert "the name of the folder is empty" in capsys.readouterr().err
    monkeypatch.setenv("OSMOSIS_DATA_DIR", " ")
    assert main(["serve"]) == 1
    assert "the name of the folder is empty" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["create-user", "ada@example.com"],
        ["set-password", "ada@example.com"],
        ["create-token", "ada@example.com"],
        ["rotate-keys"],
    ],
)
def test_a_mistyped_folder_is_told_and_not_made(
    capsys: pytest.CaptureFixture[str], folder: Path, words: list[str]
) -> None:
    wrong = folder.with_name("dtaa")
    assert main(["admin", *words, "--data", str(wrong)]) == 1
    error = capsys.readouterr().err
    assert f"no platform in {wrong}" in error
    assert len(error.splitlines()) == 1
    assert [path.name for path in folder.parent.iterdir()] == ["data"]


def test_no_command_takes_a_password_or_token_as_argument(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("create-user", "set-password"):
        with pytest.raises(SystemExit):
            main(["admin", command, "--help"])
        assert "--password " not in capsys.readouterr().out


def test_busy_port_leaves_no_folder_behind(start: Start, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        child = start("--port", str(taken.getsockname()[1]))
        assert child.wait(60) == 1
    assert not (tmp_path / "data").exists()
    assert os.listdir(tmp_path) == []

"""Upgrading takes the program from where it came, and from nowhere else. No test runs an installer."""

import json
import subprocess
import sys

import pytest

from osmosis_ai.cli import upgrade
from osmosis_ai.cli.upgrade import Origin, upgrade_command


def test_this_checkout_says_where_it_is(osmosis):
    """The tests run from an editable installation."""
    document = osmosis("upgrade", "--json").json
    assert document["status"] == "no_update"
    assert document["resource"]["method"] == "editable"
    assert "packages/osmosis-ai" in document["message"]


class Distribution:
    def __init__(self, record):
        self.record = record

    def read_text(self, name):
        assert name == "direct_url.json"
        return None if self.record is None else json.dumps(self.record)


@pytest.mark.parametrize(
    ("record", "origin"),
    [
        (None, Origin("index")),
        (
            {"url": "file:///src/osmosis", "dir_info": {"editable": True}},
            Origin("editable", "file:///src/osmosis"),
        ),
        ({"url": "file:///src/osmosis", "dir_info": {}}, Origin("local", "file:///src/osmosis")),
        ({"url": "file:///x.whl", "archive_info": {}}, Origin("archive", "file:///x.whl")),
        (
            {
                "url": "https://git.example/o.git",
                "vcs_info": {"vcs": "git", "requested_revision": "v1", "commit_id": "a"},
            },
            Origin("git", "https://git.example/o.git", "v1"),
        ),
    ],
)
def test_origins_are_read_from_the_installers_record(monkeypatch, record, origin):
    monkeypatch.setattr(upgrade, "distribution", lambda name: Distribution(record))
    assert upgrade.installed_origin() == origin


@pytest.mark.parametrize(
    ("origin", "executable", "index", "command"),
    [
        (
            Origin("index"),
            "/h/.local/share/uv/tools/osmosis-ai/bin/python",
            "",
            ["uv", "tool", "upgrade", "osmosis-ai"],
        ),
        (
            Origin("index"),
            "/h/.local/pipx/venvs/osmosis-ai/bin/python",
            "",
            ["pipx", "upgrade", "osmosis-ai"],
        ),
        (Origin("index"), "/venv/bin/python", "", []),
        (
            Origin("index"),
            "/venv/bin/python",
            "https://index.example/simple",
            [
                "/venv/bin/python",
                "-m",
                "pip",
                "install",
                "--upgrade",
                "--index-url",
                "https://index.example/simple",
                "osmosis-ai",
            ],
        ),
        (
            Origin("git", "https://git.example/o.git", "main"),
            "/venv/bin/python",
            "",
            [
                "/venv/bin/python",
                "-m",
                "pip",
                "install",
                "--upgrade",
                "osmosis-ai @ git+https://git.example/o.git@main",
            ],
        ),
    ],
)
def test_commands(monkeypatch, origin, executable, index, command):
    present = command[:1] if command and command[0] in {"uv", "pipx"} else []
    monkeypatch.setattr(upgrade.shutil, "which", lambda name: name if name in present else None)
    assert upgrade_command(origin, executable, index)[1] == command


def test_an_unknown_index_is_never_guessed(osmosis, monkeypatch):
    monkeypatch.setattr(upgrade, "installed_origin", lambda: Origin("index"))
    monkeypatch.setattr(upgrade.shutil, "which", lambda name: None)
    monkeypatch.setattr(upgrade, "_run", lambda command: pytest.fail(f"ran {command}"))
    document = osmosis("upgrade", "--json").json
    assert document["status"] == "no_update"
    assert "may be a different program" in document["message"]


@pytest.mark.parametrize(
    ("code", "after", "status", "exit_code"),
    [(0, "9.9.9", "success", 0), (0, None, "no_update", 0), (1, None, "failed", 1)],
)
def test_the_outcome_is_told(osmosis, monkeypatch, code, after, status, exit_code):
    monkeypatch.setattr(upgrade, "installed_origin", lambda: Origin("git", "https://git.example/o.git"))
    monkeypatch.setattr(
        upgrade, "_run", lambda command: subprocess.CompletedProcess(command, code, "out", "err")
    )
    if after:
        monkeypatch.setattr(upgrade, "_version_now", lambda: after)
    ran = osmosis("upgrade", "--json")
    assert ran.code == exit_code
    assert ran.json["status"] == status
    assert ran.json["resource"]["installed_version"]
    assert sys.executable in ran.json["resource"]["command"]

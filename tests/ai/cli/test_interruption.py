"""Ctrl-C at any moment: one line, exit status 130, no traceback."""

import json
import os
import subprocess
import sys

import pytest

# Sends SIGINT to itself when it looks for the module named (or for the n-th module).
PROGRAM = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from osmosis_ai.cli.main import main
at = sys.argv.pop(1)
class Interrupting:
    seen = 0
    def find_spec(self, name, path=None, target=None):
        self.seen += 1
        if at in (name, str(self.seen)):
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
sys.exit(main())
"""


def interrupted(at, *arguments, cwd):
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, at, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=cwd,
        env=dict(os.environ),
        check=False,
    )


@pytest.mark.parametrize(
    "at", ["1", "7", "30", "click", "osmosis_ai.cli.commands.dataset", "osmosis_ai.cli.workspace", "httpx"]
)
@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_an_interruption_during_imports_is_one_line(workspace, platform, at, flags):
    platform.page("/datasets", "datasets", [])
    command = ["dataset", "list"] if at != "httpx" else ["dataset", "download", "x"]
    ran = interrupted(at, *flags, *command, cwd=workspace)
    assert (ran.returncode, ran.stdout) == (130, ""), ran.stderr
    assert ran.stderr.count("\n") == 1, ran.stderr
    if flags:
        document = json.loads(ran.stderr)
        assert document["error"] == {
            "code": "INTERRUPTED",
            "message": "Aborted.",
            "details": {},
            "request_id": None,
        }
        assert document["command"] == " ".join(command[:2])
    else:
        assert ran.stderr == "Aborted.\n"


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_an_interruption_while_the_platform_answers(osmosis, workspace, monkeypatch, flags):
    from osmosis_ai.platform.api.client import PlatformClient

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(PlatformClient, "get", interrupt)
    ran = osmosis("dataset", "list", *flags)
    assert (ran.code, ran.out) == (130, "")
    if flags:
        assert ran.error["code"] == "INTERRUPTED"
        assert ran.err.count("\n") == 1
    else:
        assert ran.err.splitlines()[-1] == "Aborted."
        assert "" not in ran.err.splitlines()


def test_the_package_is_light_until_the_entry_point_can_answer():
    code = (
        "import sys; before = set(sys.modules); import osmosis_ai.cli.main; print(set(sys.modules) - before)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert eval(out.stdout) == {"osmosis_ai", "osmosis_ai.consts", "osmosis_ai.cli", "osmosis_ai.cli.main"}

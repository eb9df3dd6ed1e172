"""Modes, usage errors, help: the frame around every command."""

import contextlib
import errno
import fcntl
import json
import os
import pty
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from osmosis_ai import __version__
from osmosis_ai.cli.tree import COMMANDS, command_label

ONE = {
    "datasets": [{"id": "ds_7", "file_name": "arith"}],
    "total_count": 1,
    "has_more": False,
    "next_offset": None,
}


@pytest.mark.parametrize("flag", ["-V", "--version"])
@pytest.mark.parametrize("mode", [[], ["--json"], ["--plain"]])
def test_version(osmosis, flag, mode):
    ran = osmosis(*mode, flag)
    assert (ran.code, ran.out, ran.err) == (0, f"osmosis-ai {__version__}\n", "")


@pytest.mark.parametrize("arguments", [[], ["-h"], ["--help"], ["--json", "--help"]])
def test_root_help_has_two_panels(osmosis, arguments):
    ran = osmosis(*arguments)
    assert (ran.code, ran.err) == (0, "")
    workflow, platform = ran.out.split("Platform Commands:")
    assert "Workflow Commands:" in workflow
    assert all(f"\n  {name} " in workflow + platform for name in COMMANDS)
    assert "\n  auth " in platform
    assert "\n  dataset " in workflow


@pytest.mark.parametrize("noun", sorted(set(COMMANDS) - {"doctor", "upgrade"}))
def test_a_group_alone_is_its_help(osmosis, noun):
    ran = osmosis("--json", noun)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"Usage: osmosis {noun} ")


def test_json_without_a_command_is_an_error_not_help(osmosis):
    ran = osmosis("--json")
    assert (ran.code, ran.out) == (1, "")
    assert json.loads(ran.err)["command"] == "<root>"
    assert ran.error["code"] == "INTERNAL"


@pytest.mark.parametrize(
    "arguments",
    [["--json", "dataset", "list"], ["dataset", "--json", "list"], ["dataset", "list", "--json"]],
)
def test_the_mode_flag_may_stand_anywhere(osmosis, workspace, platform, arguments):
    platform.on("GET", "/datasets", ONE)
    ran = osmosis(*arguments)
    assert ran.code == 0, ran.err
    assert ran.err == ""
    assert ran.json["items"][0]["file_name"] == "arith"


def test_after_two_dashes_it_is_data(osmosis, workspace):
    ran = osmosis("dataset", "validate", "--", "--json")
    assert ran.code == 1
    assert ran.err == "Error: File not found: --json\n"


@pytest.mark.parametrize("flags", [["--json", "--plain"], ["--plain", "--json"]])
def test_conflicting_modes(osmosis, flags):
    ran = osmosis(*flags, "dataset", "list")
    assert (ran.code, ran.out) == (1, "")
    assert "Conflicting output format selectors" in ran.err
    assert ran.err.startswith("{") is (flags[0] == "--json")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["datset"], "No such command 'datset'. Did you mean 'dataset'?"),
        (["zzzz"], "No such command 'zzzz'."),
        (["dataset", "lst"], "No such command 'lst'."),
        (["help"], "No such command 'help'. Run 'osmosis --help'."),
        (["deploy"], "No such command 'deploy'. Did you mean 'model'?"),
        (["train", "delete", "x"], "No such command 'delete'."),
        (["eval", "info"], "Missing parameter: name"),
        (["model", "info"], "Missing parameter: lora_model_name"),
        (["train", "submit"], "Missing parameter: config_path"),
        (["auth", "whoami", "x"], "Got unexpected extra argument(s) (x)"),
        (
            ["dataset", "list", "--limit", "51"],
            "Invalid value for '--limit': 51 is not in the range 1<=x<=50.",
        ),
        (["dataset", "list", "--limit", "0"], "Invalid value for '--limit': 0 is not in the range 1<=x<=50."),
        (
            ["train", "logs", "x", "--limit", "201"],
            "Invalid value for '--limit': 201 is not in the range 1<=x<=200.",
        ),
    ],
)
def test_usage_errors_are_one_line(osmosis, arguments, text):
    ran = osmosis(*arguments)
    assert (ran.code, ran.out, ran.err) == (2, "", f"Error: {text}\n")
    ran = osmosis("--json", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.error == {"code": "VALIDATION", "message": text, "details": {}, "request_id": None}


def test_a_folder_is_no_config(osmosis, tmp_path):
    ran = osmosis("eval", "submit", str(tmp_path))
    assert ran.code == 2
    assert "is a directory" in ran.err


@pytest.mark.parametrize(
    ("arguments", "label"),
    [
        ([], "<root>"),
        (["doctor", "x"], "doctor"),
        (["dataset", "lst"], "dataset lst"),
        (["dataset"], "dataset"),
        (["zzz", "a", "b"], "zzz"),
        (["eval", "cache", "clear"], "eval cache clear"),
        (["eval", "--x", "info", "y"], "eval info"),
    ],
)
def test_labels_of_errors(arguments, label):
    assert command_label(arguments) == label


def test_the_error_envelope_has_exactly_these_keys(osmosis):
    document = json.loads(osmosis("--json", "dataset", "list").err)
    assert set(document) == {"schema_version", "command", "cli_version", "error"}
    assert document["schema_version"] == 1
    assert document["command"] == "dataset list"
    assert set(document["error"]) == {"code", "message", "details", "request_id"}
    assert document["error"]["code"] == "WORKSPACE_REQUIRED"


def test_an_unexpected_error_stays_generic(osmosis, workspace, platform):
    platform.on("GET", "/datasets", {"datasets": [1]})
    ran = osmosis("--json", "dataset", "list")
    assert (ran.code, ran.out) == (1, "")
    assert ran.error["code"] == "INTERNAL"
    assert ran.error["details"] == {"exception_type": "AttributeError"}


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.ENOSPC])
def test_what_the_disk_refuses_is_said(osmosis, workspace, monkeypatch, number):
    def refuse(self, *_args, **_kwargs):
        raise OSError(number, os.strerror(number), str(self))

    monkeypatch.setattr(Path, "mkdir", refuse)
    ran = osmosis("--json", "rollout", "init", "fox")
    assert (ran.code, ran.out) == (1, "")
    assert ran.error["code"] == "VALIDATION"
    assert "fox" in ran.error["message"]
    assert ran.error["message"].endswith(f"{os.strerror(number)}.")


def test_numbers_that_are_no_json_are_refused(osmosis, workspace, platform):
    platform.on("GET", "/datasets", lambda _: _nan())
    ran = osmosis("--json", "dataset", "list")
    assert (ran.code, ran.out) == (1, "")
    assert ran.error["code"] == "INTERNAL"


def _nan():
    from types import SimpleNamespace

    content = b'{"datasets": [{"id": "x", "row_count": NaN}], "total_count": 1}'
    return SimpleNamespace(status=200, headers={}, content=content, body=None)


def test_dotenv_is_read_upwards_and_the_environment_wins(osmosis, workspace, platform, monkeypatch):
    monkeypatch.delenv("OSMOSIS_TOKEN")
    (workspace / ".env").write_text(
        "export OSMOSIS_TOKEN='from-file'  # comment\nOSMOSIS_PLATFORM_URL=http://127.0.0.1:1\n"
    )
    monkeypatch.chdir(workspace / "data")
    platform.on("GET", "/datasets", ONE)
    assert osmosis("dataset", "list", "--json").code == 0
    assert platform.requests[0].headers["authorization"] == "Bearer from-file"


def test_completion_of_starters_works_offline():
    environment = {
        **os.environ,
        "_OSMOSIS_COMPLETE": "zsh_complete",
        "COMP_WORDS": "osmosis template apply multiply-local-o",
        "COMP_CWORD": "3",
    }
    answer = subprocess.run(
        [sys.executable, "-m", "osmosis_ai.cli.main"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert "multiply-local-openai" in answer.stdout


class Terminal:
    """The program at a terminal: a pseudo-terminal as standard input that is also its controlling one."""

    def __init__(self, *arguments):
        self.ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "osmosis_ai.cli.main", *arguments],
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(theirs)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()
        os.close(self.ours)

    def wait_for(self, text):
        seen = b""
        while text.encode() not in seen:
            block = os.read(self.process.stderr.fileno(), 4096)
            assert block, seen
            seen += block

    def type_until_it_ends(self, text):
        """Type; a key that came before the program listened is typed again."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            os.write(self.ours, text.encode())
            with contextlib.suppress(subprocess.TimeoutExpired):
                return self.process.communicate(timeout=2)[0].decode()
        raise AssertionError("the program did not end")


@pytest.mark.parametrize(
    ("typed", "code", "stopped"),
    [
        ("y\n", 0, True),
        ("nx\x7f\x15yés\x7f\x7fes\n", 0, True),  # erased, begun again, a character of two bytes erased
        ("\x1b[A\n", 0, False),  # an arrow is no Esc
        ("\n", 0, False),
        ("\x1b", 0, False),
        ("\x03", 130, False),
    ],
)
def test_a_person_is_asked_and_the_default_is_no(workspace, platform, typed, code, stopped):
    platform.on("POST", "/training-runs/quiet-heron/stop", {"id": "1", "status": "stopping"})
    with Terminal("train", "stop", "quiet-heron") as terminal:
        terminal.wait_for("Stop this training run? [y/N]:")
        out = terminal.type_until_it_ends(typed)
        assert terminal.process.returncode == code
    assert bool(platform.requests) is stopped
    assert ('Training run "quiet-heron" stopped.' in out) is stopped
    assert ("Cancelled." in out) is (code == 0 and not stopped)


@pytest.mark.parametrize("key", ["\x1b", "\x03"])
def test_a_person_who_gives_up_saves_no_secret(workspace, platform, key):
    with Terminal("secret", "set", "API_KEY") as terminal:
        terminal.wait_for("Value of API_KEY:")
        out = terminal.type_until_it_ends(key)
    assert (terminal.process.returncode, out, platform.requests) == (0, "Cancelled.\n", [])


def test_a_secret_is_typed_without_being_shown(workspace, platform):
    platform.on("POST", "/environment-secrets", {"id": "s1", "name": "API_KEY", "scope": "user"})
    with Terminal("secret", "set", "API_KEY") as terminal:
        terminal.wait_for("Value of API_KEY:")
        os.write(terminal.ours, b"p\xc3\xa4ss w0rd\n")
        out, err = terminal.process.communicate(timeout=60)
        try:
            shown = os.read(terminal.ours, 100)
        except OSError:  # nothing was echoed before the other end was closed
            shown = b""
    assert platform.requests[0].json["value"] == "päss w0rd"
    assert b"w0rd" not in out + err
    assert shown == b""


@pytest.mark.parametrize(
    "command",
    ["eval info", "train stop", "dataset validate", "model deploy", "benchmark runs info", "dev server down"],
)
def test_an_empty_name_is_wrong_usage(osmosis, workspace, platform, command):
    ran = osmosis(*command.split(), "", "--json")
    assert (ran.code, ran.error["code"], platform.requests) == (2, "VALIDATION", [])
    assert ran.error["message"].endswith("it must not be empty.")

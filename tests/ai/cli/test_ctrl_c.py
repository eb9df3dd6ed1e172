"""Ctrl-C in every command that may take long: status 130, one last line, nothing half-done, and at once."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading

import pytest

PROGRAM = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from osmosis_ai.cli.main import main
sys.exit(main())
"""
PATIENCE_S = 60
AGAIN_S = 10


@pytest.fixture
def hang():
    """A route that is reached and does not answer before the test is over."""
    reached, over = threading.Event(), threading.Event()

    def route(_):
        from types import SimpleNamespace

        reached.set()
        over.wait(PATIENCE_S)
        return SimpleNamespace(status=503, body={"error": "late"}, headers={}, content=None)

    route.reached = reached
    yield route
    over.set()


def interrupt(hang, *arguments):
    """Start the command, wait until it waits for the platform, press Ctrl-C."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=dict(os.environ),
    ) as process:
        try:
            assert hang.reached.wait(PATIENCE_S), process.poll()
            out, err = press(process)
        finally:
            process.kill()
    return process.returncode, out, err


def press(process):
    """Ctrl-C; again after ten seconds, as people do. Python loses the first one when it lands in a finalizer, whose exceptions it
    can only ignore.
    """
    for _ in range(PATIENCE_S // AGAIN_S):
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=AGAIN_S)
    raise AssertionError(f"the command goes on after {PATIENCE_S} s of Ctrl-C")


FINISHED_EVAL = {"eval_run": {"id": "e-1", "name": "calm", "status": "finished"}}
BLOB = {"path": "metrics.json", "size": 5}
COMMANDS = {
    "dataset list": ("GET", "/datasets"),
    "dataset upload data/rows.jsonl --yes": ("PUT", "/blob"),
    "dataset download rows": ("GET", "/blob"),
    "eval submit configs/eval/c.toml --yes": ("POST", "/eval-runs"),
    "eval info calm": ("GET", "/eval-runs/e-1/metrics"),
    "eval download calm": ("GET", "/blob"),
    "train info calm --watch": ("GET", "/training-runs/calm"),
    "train info calm": ("GET", "/training-runs/calm"),
    "benchmark runs list": ("GET", "/benchmark-runs"),
    "model deploy m": ("POST", "/models/m/deploy"),
    "secret set KEY --env HOME": ("POST", "/environment-secrets"),
    "auth login --token t": ("GET", "/verify"),
    "dev server logs s": ("GET", "/dev-rollout-server/s/logs/stream"),
}


@pytest.mark.parametrize("flags", [[], ["--json"]], ids=["rich", "json"])
@pytest.mark.parametrize("command", COMMANDS)
def test_one_line_and_130(workspace, platform, hang, command, flags):
    rows = '{"system_prompt": "s", "user_prompt": "u", "ground_truth": "1"}\n' * 5
    (workspace / "data/rows.jsonl").write_text(rows)
    (workspace / "rollouts/calc/pyproject.toml").write_text(
        '[project]\nname = "x"\ndependencies = ["not-installed-anywhere"]\n'
    )
    (workspace / "configs/eval/c.toml").write_text(
        '[experiment]\nrollout = "calc"\nentrypoint = "main.py"\nmodel_path = "m"\ndataset = "d"\n'
        "[secrets]\nrequired = []\n"
    )
    blob = f"{platform.url}/blob"
    method, path = COMMANDS[command]
    platform.on(method, path, hang)
    upload = {"method": "simple", "presigned_url": blob, "s3_key": "k", "upload_headers": {}}
    platform.on("POST", "/datasets", {"id": "d-1", "file_name": "rows", "upload": upload})
    platform.on("POST", "/datasets/d-1/abort", {})
    platform.on(
        "GET",
        "/datasets/rows",
        {"id": "d-1", "file_name": "rows", "status": "uploaded", "file_size": 5, "file_format": "jsonl"},
    )
    for name in ("rows", "d-1"):
        platform.on("GET", f"/datasets/{name}/download", {"presigned_url": blob})
    platform.on("GET", "/eval-runs/calm", FINISHED_EVAL)
    platform.on("GET", "/eval-runs/e-1/samples/manifest", {"files": [BLOB]})
    platform.on(
        "POST", "/eval-runs/e-1/samples/download-urls", {"items": [{"path": "metrics.json", "url": blob}]}
    )
    if "logs" in command and flags:
        flags = [*flags, "--follow"]
    code, out, err = interrupt(hang, *command.split(), *flags)
    assert (code, out) == (130, ""), err
    assert "Traceback" not in err
    if flags:
        *warnings, error = map(json.loads, err.splitlines())
        assert error["error"]["code"] == "INTERRUPTED"
        assert all("warning" in line for line in warnings)
    else:
        assert err.splitlines()[-1] == "Aborted."
    if "upload" in command:
        assert platform.calls()[-1] == "POST /datasets/d-1/abort"
    left = [path for path in workspace.rglob("*") if path.suffix == ".partial" or path.name == "rows"]
    assert left == []


def test_while_the_browser_is_waited_for(platform, hang, monkeypatch):
    monkeypatch.setenv("OSMOSIS_PLATFORM_URL", platform.url)
    code = {
        "device_code": "d",
        "user_code": "ABCD",
        "verification_uri": "http://h/device",
        "expires_in": 900,
        "interval": 1,
    }
    platform.on("POST", "/device/authorize", code)
    platform.on("POST", "/device/token", hang)
    status, out, err = interrupt(hang, "auth", "login")
    assert (status, out) == (130, "")
    assert err.splitlines()[-1] == "Aborted."
    assert "Traceback" not in err

"""CPU-seconds until a command is done, against a click program without anything behind its commands."""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from benchmarks.result import Result

OURS = "import sys; from osmosis_ai.cli.main import main; sys.exit(main())"
# As many commands as `osmosis` has at its root; `list` asks the platform once, as `osmosis dataset list` does.
PLAIN = """
import json, os, sys, urllib.request
import click

@click.group()
@click.version_option("1.0", prog_name="plain")
def root(): "A plain program."

def add(name):
    @root.command(name, help=f"What {name} does.")
    def command(): click.echo("done")

for name in "train model eval benchmark rollout template doctor auth secret upgrade".split():
    add(name)

@root.command("dataset")
def dataset():
    request = urllib.request.Request(
        os.environ["OSMOSIS_PLATFORM_URL"] + "/api/cli/datasets?limit=50&offset=0",
        headers={"Authorization": "Bearer " + os.environ["OSMOSIS_TOKEN"]},
    )
    with urllib.request.urlopen(request) as answer:
        click.echo(json.dumps(json.load(answer)))

root()
"""


class _Platform(BaseHTTPRequestHandler):
    """Answers every request with an empty list."""

    def do_GET(self) -> None:
        """One page without datasets."""
        content = json.dumps(
            {"datasets": [], "total_count": 0, "has_more": False, "next_offset": None}
        ).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


def run(rounds: int = 7) -> list[Result]:
    """Median CPU-seconds (user and system, git included) of whole processes; both programs take turns."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Platform)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        workspace = _workspace(Path(folder))
        environment = {
            **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
            "HOME": folder,
            "OSMOSIS_PLATFORM_URL": f"http://127.0.0.1:{server.server_port}",
            "OSMOSIS_TOKEN": "token",
        }
        results = [
            _compare(name, ours, plain, workspace, environment, rounds)
            for name, ours, plain in (
                ("osmosis --help", ["--help"], ["--help"]),
                ("osmosis --version", ["--version"], ["--version"]),
                ("osmosis dataset list --json", ["dataset", "list", "--json"], ["dataset"]),
            )
        ]
    server.shutdown()
    server.server_close()
    return results


def _compare(
    name: str, ours: list[str], plain: list[str], folder: Path, environment: dict[str, str], rounds: int
) -> Result:
    sides = ([sys.executable, "-c", OURS, *ours], [sys.executable, "-c", PLAIN, *plain])
    spent: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds + 1):
        for side, command in enumerate(sides):
            seconds = _cpu_seconds(command, folder, environment)
            if number:  # the first round compiles what is imported
                spent[side].append(seconds)
    value, other = map(statistics.median, spent)
    return Result(name, value, "CPU-s", "plain click program", other / value)


def _cpu_seconds(command: list[str], folder: Path, environment: dict[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _workspace(folder: Path) -> Path:
    """A workspace directory."""
    space = folder / "space"
    for name in ("rollouts", "configs/training", "configs/eval", "data"):
        (space / name).mkdir(parents=True)
    for arguments in (["init", "-q"], ["remote", "add", "origin", "https://github.com/team/space.git"]):
        subprocess.run(["git", *arguments], cwd=space, check=True)
    return space

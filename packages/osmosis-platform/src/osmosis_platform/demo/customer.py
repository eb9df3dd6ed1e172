"""The customer's side of the demo: a clone, and the `osmosis` command as a subprocess."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from osmosis_platform.demo.console import Narrator
from osmosis_platform.demo.host import Account, Host

POLL_SECONDS = 2.0
WAIT_SECONDS = 1800
ENDED = {"finished", "failed", "crashed", "stopped", "killed"}


class CommandFailed(Exception):
    """A command ended with an error, or a run did not finish."""


class Customer:
    """Works in `<folder>/workspace`, a clone of the workspace repository."""

    def __init__(self, host: Host, account: Account, narrator: Narrator) -> None:
        self.host = host
        self.account = account
        self.workspace = host.folder / "workspace"
        self._narrator = narrator

    def clone(self) -> None:
        """Clone the repository from the platform's git host."""
        url = f"{self.host.url}/git/{self.account.repository}.git"
        self.git("clone", "--quiet", url, str(self.workspace), cwd=self.host.folder)
        self.git("config", "user.name", "Demo Owner")
        self.git("config", "user.email", self.account.email)

    def git(self, *arguments: str, cwd: Path | None = None) -> None:
        """Run git with the account's token, which never stands in arguments or in the clone's configuration."""
        self._narrator.command("git", *arguments)
        self._run(["git", *arguments], cwd=cwd or self.workspace)

    def commit_and_push(self, message: str) -> None:
        """Commit everything and push."""
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", message)
        self.git("push", "--quiet")

    def osmosis(self, *arguments: str) -> str:
        """Run a command for people and show its output."""
        self._narrator.command("osmosis", *arguments)
        output = self._run([*_command(), *arguments])
        self._narrator.output(output)
        return output

    def osmosis_json(self, *arguments: str, show: bool = True) -> dict[str, Any]:
        """Run a command for scripts and read its JSON."""
        if show:
            self._narrator.command("osmosis", "--json", *arguments)
        data: dict[str, Any] = json.loads(self._run([*_command(), "--json", *arguments]))
        return data

    def wait_for_dataset(self, name: str) -> dict[str, Any]:
        """Poll until the dataset is processed."""

        def state() -> tuple[bool, dict[str, Any], str]:
            data = self.osmosis_json("dataset", "info", name, show=False)["data"]
            dataset = data.get("dataset", data)
            status = dataset["status"]
            if status in {"error", "cancelled"}:
                raise CommandFailed(f"dataset {name} ended as {status}; see: osmosis dataset logs {name}")
            return status == "uploaded", dataset, status

        return self._wait(f"dataset {name}", state)

    def submit(self, kind: str, config: str) -> str:
        """Submit a config (`kind` is `eval` or `train`); returns the run's name."""
        return str(self.osmosis_json(kind, "submit", config, "--yes")["resource"]["name"])

    def wait_for_run(self, kind: str, name: str) -> dict[str, Any]:
        """Poll `osmosis <kind> info` until the run has ended; raises CommandFailed unless it finished."""

        def state() -> tuple[bool, dict[str, Any], str]:
            data = self.osmosis_json(kind, "info", name, show=False)["data"]
            run = data["eval_run"] if kind == "eval" else data["training_run"]
            if run["status"] in ENDED - {"finished"}:
                logs = self._run([*_command(), "--plain", kind, "logs", name, "--limit", "15"])
                raise CommandFailed(f"{kind} run {name} ended as {run['status']}.\n{logs}")
            return run["status"] == "finished", data, _progress(data, run)

        return self._wait(f"{kind} {name}", state)

    def _wait(self, what: str, state: Callable[[], tuple[bool, dict[str, Any], str]]) -> dict[str, Any]:
        deadline = time.monotonic() + WAIT_SECONDS
        with self._narrator.waiting(what) as update:
            while time.monotonic() < deadline:
                self.host.check_alive()
                done, data, text = state()
                update(text)
                if done:
                    return data
                time.sleep(POLL_SECONDS)
        raise CommandFailed(f"{what} had not ended after {WAIT_SECONDS} s")

    def _run(self, command: list[str], cwd: Path | None = None) -> str:
        done = subprocess.run(
            command,
            cwd=cwd or self.workspace,
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        if done.returncode:
            shown = " ".join(command[-4:])
            raise CommandFailed(
                f"`{shown}` ended with status {done.returncode}:\n{done.stdout}{done.stderr}".rstrip()
            )
        return done.stdout

    def _environment(self) -> dict[str, str]:
        token = self.account.token
        return {
            **{k: v for k, v in os.environ.items() if not k.startswith(("OSMOSIS_", "GIT_"))},
            "OSMOSIS_PLATFORM_URL": self.host.url,
            "OSMOSIS_TOKEN": token,
            "OSMOSIS_TOKEN_PLATFORM_URL": self.host.url,
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": f"http.{self.host.url}/.extraHeader",
            "GIT_CONFIG_VALUE_0": f"Authorization: Bearer {token}",
        }


def _command() -> list[str]:
    return [sys.executable, "-m", "osmosis_ai.cli.main"]


def _progress(data: dict[str, Any], run: dict[str, Any]) -> str:
    summary = data.get("summary") or {}
    progress = summary.get("progress")
    parts = [str(run["status"])]
    if isinstance(progress, dict):
        parts.append(
            f"{progress.get('completed', 0)} / {progress.get('total', '?')} {progress.get('unit', '')}".strip()
        )
    reward = summary.get("reward", summary.get("avg_reward"))
    if isinstance(reward, int | float):
        parts.append(f"reward {reward:.2f}")
    return ", ".join(parts)

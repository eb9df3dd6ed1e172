"""The operator's side of the demo: a new folder, a first account, and the platform process."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from osmosis_ai.templates import write_workspace
from osmosis_platform.accounts.service import create_user
from osmosis_platform.accounts.tokens import create_token
from osmosis_platform.context import open_platform
from osmosis_platform.demo.console import Narrator
from osmosis_platform.folder import identity_file
from osmosis_platform.inference.keys import create_key
from osmosis_platform.repositories.service import create_repository
from osmosis_platform.settings import Settings
from osmosis_platform.workspaces.service import create_workspace

DEFAULT_PORT = 8400
EMAIL = "owner@example.com"
WORKSPACE = "demo"
START_SECONDS = 60


class PlatformDied(Exception):
    """The platform process ended or did not become ready."""


@dataclass(frozen=True, slots=True)
class Account:
    """What a person gets from the operator: sign-in, CLI token, inference key, repository."""

    email: str
    password: str
    token: str
    api_key: str
    repository: str


class Host:
    """One platform in `<folder>/platform`."""

    def __init__(self, folder: Path, *, port: int | None, narrator: Narrator) -> None:
        self.folder = folder
        self.port = port if port is not None else _choose_port(narrator)
        self.url = f"http://127.0.0.1:{self.port}"
        self.log_path = folder / "platform.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._narrator = narrator

    @property
    def settings(self) -> Settings:
        """Settings of the demo's platform."""
        return Settings(data_dir=self.folder / "platform", port=self.port)

    def prepare(self) -> Account:
        """Create folder, owner, workspace, token, key and the workspace repository from the template."""
        self.folder.mkdir(parents=True, exist_ok=True)
        password = secrets.token_urlsafe(9)
        platform = open_platform(self.settings)
        try:
            with platform.database.write() as session:
                user = create_user(session, email=EMAIL, name="Demo Owner", password=password)
                workspace = create_workspace(session, name=WORKSPACE, owner=user)
                _, token = create_token(session, user.id, name="demo")
                _, api_key = create_key(session, workspace.id, user, "demo")
                repository = create_repository(
                    session, platform, workspace, "agents", author=user, write_tree=write_workspace
                )
                name = repository.full_name
        finally:
            platform.close()
        return Account(EMAIL, password, token, api_key, name)

    def start(self) -> None:
        """Start the platform and wait until it answers."""
        command = [sys.executable, "-m", "osmosis_platform.main", "serve"]
        command += ["--data", str(self.folder / "platform"), "--port", str(self.port)]
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=_environment(),
            )
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            self.check_alive()
            if self._is_ready(self._process.pid):
                return
            time.sleep(0.1)
        raise PlatformDied(f"The platform was not ready after {START_SECONDS} s.")

    def _is_ready(self, pid: int) -> bool:
        # Another program may answer at the port, so the platform also has to say that it is the one we started.
        try:
            if json.loads(identity_file(self.settings.data_dir).read_text())["pid"] != pid:
                return False
            with urllib.request.urlopen(f"{self.url}/health", timeout=2):
                return True
        except (FileNotFoundError, urllib.error.URLError, OSError):
            return False

    def check_alive(self) -> None:
        """Raise PlatformDied when the process has ended."""
        if self._process is None or self._process.poll() is not None:
            code = self._process.returncode if self._process else None
            tail = (
                self.log_path.read_text(errors="replace").splitlines()[-5:] if self.log_path.exists() else []
            )
            raise PlatformDied("\n".join([f"The platform ended with status {code}.", *tail]))

    def wait(self) -> None:
        """Block until the platform ends or Ctrl-C."""
        assert self._process is not None
        self._process.wait()
        self.check_alive()

    def stop(self) -> None:
        """End the platform, with everything it started."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _environment() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if k not in {"OSMOSIS_TOKEN", "PYTHONDONTWRITEBYTECODE"}}


def _choose_port(narrator: Narrator) -> int:
    for port in (DEFAULT_PORT, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                narrator.say(f"Port {port} is busy, taking a free one.")
                continue
            return int(probe.getsockname()[1])
    raise PlatformDied("No free port on 127.0.0.1.")

"""The rollout server of one run: the user's code in its own environment and sandbox, behind one port."""

from __future__ import annotations

import json
import os
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx

from osmosis_ai.processes.ports import free_port
from osmosis_platform.compute.children import Child, Limits, Spawner
from osmosis_platform.compute.environments import Environment
from osmosis_platform.compute.failures import RunFailed
from osmosis_platform.compute.run_log import RunLog
from osmosis_platform.compute.sandbox import Sandbox

HEALTH_SECONDS = 90.0
_IMPORT_SECONDS = 120.0
_POLL_SECONDS = 0.1
_FILE_BYTES = 2 * 1024**3
_PROCESSES = 4096
# Of the platform's environment a rollout gets only what the network needs.
_PASSED_ON = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy", "TZ")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a rollout runs: its code, its artifact folder, its environment and sandbox."""

    code: Path
    artifacts: Path
    environment: Environment
    sandbox: Sandbox
    memory_bytes: int

    def command(self, arguments: list[str]) -> list[str]:
        """The confined command line of the environment's interpreter."""
        return self.sandbox.command(
            [str(self.environment.python), *arguments],
            cwd=self.code,
            readonly=self.environment.readonly,
            writable=(self.code, self.artifacts),
        )

    def limits(self) -> Limits:
        """Resource limits of everything that runs here."""
        return Limits(data_bytes=self.memory_bytes, processes=_PROCESSES, file_bytes=_FILE_BYTES)

    def env(self, given: Mapping[str, str]) -> dict[str, str]:
        """The environment variables, with those the user gave."""
        passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        local = "127.0.0.1,localhost"
        return {
            **passed,
            "NO_PROXY": local,
            "no_proxy": local,
            "PATH": f"{self.environment.python.parent}:/usr/local/bin:/usr/bin:/bin",
            "HOME": "/tmp/home" if self.sandbox.name != "none" else str(self.artifacts),
            "LANG": "C.UTF-8",
            "PYTHONUNBUFFERED": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            **given,
        }


def check_entrypoint(spawner: Spawner, place: Place, entrypoint: str, env: Mapping[str, str]) -> None:
    """Import the entrypoint where it will run; raises RunFailed with the reason when it does not or lacks its parts."""
    arguments = ["-m", "osmosis_ai.rollout.discovery", str(place.code), entrypoint]
    try:
        done = spawner.run(
            place.command(arguments),
            env=place.env(env),
            cwd=place.code,
            timeout=_IMPORT_SECONDS,
            limits=place.limits(),
        )
    except subprocess.TimeoutExpired:
        raise _unusable(f"importing {entrypoint} took longer than {_IMPORT_SECONDS:.0f} s") from None
    try:
        found = json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        raise _unusable(_last_lines(done.stderr.splitlines()) or f"status {done.returncode}") from None
    if done.returncode != 0:
        problems = [
            problem["message"] if isinstance(problem, dict) else str(problem) for problem in found["problems"]
        ]
        raise _unusable("; ".join(problems) or f"status {done.returncode}")


def _unusable(reason: str) -> RunFailed:
    return RunFailed(f"Entrypoint does not import: {reason}", "entrypoint_failed")


def _last_lines(lines: list[str], count: int = 8) -> str:
    return "\n".join(line for line in lines[-count:] if line.strip())


class RolloutServer:
    """One rollout server process and its successors on the same port."""

    def __init__(
        self,
        spawner: Spawner,
        place: Place,
        entrypoint: str,
        env: Mapping[str, str],
        run_log: RunLog,
        interrupted: Callable[[], bool],
    ) -> None:
        self._spawner = spawner
        self._place = place
        self._entrypoint = entrypoint
        self._env = dict(env)
        self._log = run_log
        self._interrupted = interrupted
        self.port = free_port()
        # A worker that meets the server only after a restart still knows it as its own: see ServerWatch.
        self._name = uuid.uuid4().hex
        self._starts = 0
        self.instance_id = ""
        self.child: Child | None = None

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start a process and wait until it is healthy; raises RunFailed with its last lines when it does not become so.

        Returns early when the run is interrupted meanwhile.
        """
        self.stop()
        self._starts += 1
        self.instance_id = f"{self._name}.{self._starts}"
        reserved = {
            "_OSMOSIS_ROLLOUT_PORT": str(self.port),
            "_OSMOSIS_ROLLOUT_HOST": "127.0.0.1",
            "_OSMOSIS_ROLLOUT_ARTIFACT_ROOT": str(self._place.artifacts),
            "_OSMOSIS_ROLLOUT_INSTANCE_ID": self.instance_id,
        }
        self.child = self._spawner.start(
            self._place.command([self._entrypoint]),
            env={**self._place.env(self._env), **reserved},
            cwd=self._place.code,
            on_line=self._log.output("rollout"),
            limits=self._place.limits(),
            name="rollout",
        )
        self._wait_healthy(self.child)

    def ended(self) -> int | None:
        """The exit status of the process that ended, or None while it runs."""
        return self.child.poll() if self.child is not None else None

    def last_lines(self) -> str:
        """The end of the process's output."""
        return _last_lines(list(self.child.tail)) if self.child is not None else ""

    def stop(self) -> None:
        """End the process and everything it started."""
        if self.child is not None:
            self.child.kill()

    def _wait_healthy(self, child: Child) -> None:
        deadline = time.monotonic() + HEALTH_SECONDS
        with httpx.Client(timeout=2.0, trust_env=False) as client:
            while not self._interrupted():
                status = child.wait(_POLL_SECONDS)
                if status is not None:
                    child.finish_reading()
                    raise RunFailed(
                        f"The rollout server ended with status {status} before it was ready. Its last lines:\n{self.last_lines()}",
                        "rollout_server_failed",
                    )
                if _is_healthy(client, self.url):
                    return
                if time.monotonic() > deadline:
                    raise RunFailed(
                        f"The rollout server did not answer GET /health within {HEALTH_SECONDS:.0f} s on port {self.port}; it has to "
                        f"listen on _OSMOSIS_ROLLOUT_PORT. Its last lines:\n{self.last_lines()}",
                        "rollout_server_failed",
                    )


def _is_healthy(client: httpx.Client, url: str) -> bool:
    try:
        return client.get(f"{url}/health").status_code == 200
    except httpx.HTTPError:
        return False

"""A Python environment of its own for every rollout, built with uv from the rollout's pyproject.toml and reused.

Runs share environments read-only; the least recently used ones are removed.
"""

from __future__ import annotations

import fcntl
import logging
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from osmosis_ai.environments.build import (
    READY,
    Builder,
    BuildOptions,
    Run,
    Say,
    environment_key,
    python_of,
    uv_env,
)
from osmosis_ai.environments.errors import EnvironmentFailedError
from osmosis_ai.environments.project import Project, read_project
from osmosis_ai.environments.wheel import SdkWheel
from osmosis_platform.compute import warm_up
from osmosis_platform.compute.children import Spawner
from osmosis_platform.compute.failures import RunFailed
from osmosis_platform.compute.sandbox import Sandbox

log = logging.getLogger("osmosis_platform.compute")

KEEP = 12
_BUILD_SECONDS = 1800.0
_WARM_UP_SECONDS = 180.0


@dataclass(frozen=True, slots=True)
class Environment:
    """An interpreter and the folders it needs to be seen in a sandbox (`readonly`)."""

    python: Path
    readonly: tuple[Path, ...]


class Environments(Protocol):
    """Where rollouts get their environment from."""

    def use(self, project: Path, options: BuildOptions, say: Say) -> AbstractContextManager[Environment]:
        """A context manager with the environment of the project folder; it is not removed inside the block."""
        ...


class UvEnvironments:
    """Environments below one folder, built by uv."""

    def __init__(
        self, folder: Path, wheel: Callable[[], SdkWheel], spawner: Spawner, sandbox: Sandbox
    ) -> None:
        self.folder = folder.resolve()
        self._sandbox = sandbox
        self._wheel = wheel
        self._spawner = spawner
        self._building: dict[str, threading.Lock] = {}
        self._guard = threading.Lock()

    @contextmanager
    def use(self, project: Path, options: BuildOptions, say: Say) -> Iterator[Environment]:
        """See Environments; raises RunFailed when the environment cannot be built."""
        with ExitStack() as stack:
            try:
                target = self._prepare(project, options, say, stack)
            except EnvironmentFailedError as error:
                raise RunFailed(error.message, "environment_failed") from error
            yield Environment(python_of(target), (target, *_base_folders()))
        self.evict()

    def _prepare(self, folder: Path, options: BuildOptions, say: Say, stack: ExitStack) -> Path:
        """The environment's folder, built if need be; `stack` holds the lock that keeps it."""
        project = read_project(folder)
        wheel = self._wheel()
        key = environment_key(project, wheel, options)
        self.folder.mkdir(parents=True, exist_ok=True)
        target = self.folder / key
        stack.enter_context(_shared_lock(self.folder / f"{key}.lock"))
        with self._one_builder(key):
            Builder(wheel, options, self._runner(options), say, self._warm_up).ensure(target, project)
            (target / READY).touch()
        return target

    @contextmanager
    def _one_builder(self, key: str) -> Iterator[None]:
        with self._guard:
            lock = self._building.setdefault(key, threading.Lock())
        with lock:
            yield

    def evict(self) -> None:
        """Remove environments beyond the `KEEP` most recently used ones, except those in use."""
        if not self.folder.is_dir():
            return
        ready = [path.parent for path in self.folder.glob(f"*/{READY}")]
        ready.sort(key=lambda path: (path / READY).stat().st_mtime, reverse=True)
        for path in ready[KEEP:]:
            lock = self.folder / f"{path.name}.lock"
            with lock.open("w") as handle:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    continue
                log.info("removing the environment %s, unused for longest", path.name)
                (path / READY).unlink(missing_ok=True)
                shutil.rmtree(path, ignore_errors=True)

    def _runner(self, options: BuildOptions) -> Run:
        def run(command: Sequence[str], cwd: Path) -> tuple[int, str]:
            # Sandboxes of root's platform read it as another user.
            readable = ["/bin/sh", "-c", 'umask 022; exec "$@"', "sh", *command]
            child = self._spawner.start(
                readable, env=uv_env(), cwd=cwd, on_line=lambda _line: None, name="build"
            )
            deadline = time.monotonic() + _BUILD_SECONDS
            while child.wait(0.2) is None:
                if options.cancelled() or time.monotonic() > deadline:
                    child.kill()
                    raise EnvironmentFailedError(
                        "Building the environment was interrupted, or took longer than 30 minutes."
                    )
            child.finish_reading()
            return child.process.returncode, "\n".join(child.tail).strip()

        return run

    def _warm_up(self, target: Path, project: Project) -> None:
        """Compile what rollouts import: the environment is read-only for them. Only packages run here, no code of users."""
        script = target / ".warm-up.py"
        shutil.copyfile(warm_up.__file__, script)
        command = self._sandbox.command(
            [str(target / "bin" / "python"), str(script), *project.requirements],
            cwd=target,
            readonly=_base_folders(),
            writable=(target,),
        )
        env = {
            "PATH": "/usr/bin:/bin",
            "HOME": "/tmp",
            "LANG": "C.UTF-8",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        }
        try:
            self._spawner.run(command, env=env, cwd=target, timeout=_WARM_UP_SECONDS)
        except subprocess.TimeoutExpired:
            log.warning("the environment %s is used although importing its packages takes long", target.name)
        script.unlink()


def _base_folders() -> tuple[Path, ...]:
    """The folders of the interpreter that environments are made from."""
    return tuple(dict.fromkeys((Path(sys.base_prefix).resolve(), Path(sys.base_prefix))))


@contextmanager
def _shared_lock(path: Path) -> Iterator[None]:
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_SH)
        yield

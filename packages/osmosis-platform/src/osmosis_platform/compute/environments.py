"""A Python environment of its own for every rollout, built with uv from the rollout's pyproject.toml and reused.

An environment is named by a hash of everything that decides its content: the project file, its lock, the interpreter, the
machine, and the platform's own SDK wheel. Runs share it read-only; the least recently used ones are removed.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import platform as machine
import shutil
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from osmosis_platform.compute import warm_up
from osmosis_platform.compute.children import Spawner
from osmosis_platform.compute.failures import RunFailed
from osmosis_platform.compute.sandbox import Sandbox
from osmosis_platform.compute.wheel import PACKAGE, SdkWheel

log = logging.getLogger("osmosis_platform.compute")

KEEP = 12
_BUILD_SECONDS = 1800.0
_WARM_UP_SECONDS = 180.0
_READY = ".ready"

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Environment:
    """An interpreter and the folders it needs to be seen in a sandbox (`readonly`)."""

    python: Path
    readonly: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class Project:
    """What decides the content of a rollout's environment."""

    folder: Path
    pyproject: bytes
    lock: bytes | None
    sdk_extras: tuple[str, ...]
    requirements: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """`index`: missing packages may be downloaded. `sdk_from_index`: the SDK may come from there too."""

    index: bool = True
    sdk_from_index: bool = False
    cancelled: Callable[[], bool] = field(default=lambda: False)


class Environments(Protocol):
    """Where rollouts get their environment from."""

    def use(self, project: Path, options: BuildOptions, say: Say) -> AbstractContextManager[Environment]:
        """A context manager with the environment of the project folder; it is not removed inside the block."""
        ...


def read_project(folder: Path) -> Project:
    """Read the project file of a rollout; raises RunFailed with what to write."""
    path = folder / "pyproject.toml"
    try:
        raw = path.read_bytes()
        content = tomllib.loads(raw.decode())
    except FileNotFoundError:
        raise _bad(
            "The rollout has no pyproject.toml; add one with osmosis-ai among its dependencies."
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise _bad(f"The rollout's pyproject.toml cannot be read: {error}") from error
    table = content.get("project", {})
    _check_python(table.get("requires-python"))
    extras: set[str] = set()
    names: list[str] = []
    for text in table.get("dependencies", []):
        try:
            requirement = Requirement(text)
        except (InvalidRequirement, TypeError) as error:
            raise _bad(f"The rollout's pyproject.toml has the dependency {text!r}: {error}") from error
        names.append(requirement.name.lower().replace("_", "-"))
        if names[-1] == PACKAGE:
            extras |= requirement.extras
    if PACKAGE not in names:
        raise _bad(
            f"The rollout's pyproject.toml does not depend on {PACKAGE}; add "
            f'"{PACKAGE}[server]" to its dependencies.'
        )
    lock = folder / "uv.lock"
    locked = lock.read_bytes() if lock.is_file() else None
    return Project(folder, raw, locked, tuple(sorted(extras)), tuple(names))


def _bad(message: str) -> RunFailed:
    return RunFailed(message, "environment_failed")


def _check_python(wanted: object) -> None:
    if wanted is None:
        return
    try:
        fits = SpecifierSet(str(wanted)).contains(machine.python_version(), prereleases=True)
    except InvalidSpecifier as error:
        raise _bad(f"The rollout's requires-python {wanted!r} is not valid: {error}") from error
    if not fits:
        raise _bad(f"The rollout requires Python {wanted}; this platform runs {machine.python_version()}.")


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
        wanted = read_project(project)
        wheel = self._wheel()
        key = environment_key(wanted, wheel, options)
        self.folder.mkdir(parents=True, exist_ok=True)
        with _shared_lock(self.folder / f"{key}.lock"):
            with self._one_builder(key):
                target = self.folder / key
                if not (target / _READY).is_file():
                    self._build(target, wanted, wheel, options, say)
                (target / _READY).touch()
            yield Environment(
                target / "bin" / "python",
                (target, *_base_folders()),
            )
        self.evict()

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
        ready = [path.parent for path in self.folder.glob(f"*/{_READY}")]
        ready.sort(key=lambda path: (path / _READY).stat().st_mtime, reverse=True)
        for path in ready[KEEP:]:
            lock = self.folder / f"{path.name}.lock"
            with lock.open("w") as handle:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    continue
                log.info("removing the environment %s, unused for longest", path.name)
                (path / _READY).unlink(missing_ok=True)
                shutil.rmtree(path, ignore_errors=True)

    def _build(
        self, target: Path, project: Project, wheel: SdkWheel, options: BuildOptions, say: Say
    ) -> None:
        shutil.rmtree(target, ignore_errors=True)
        started = time.monotonic()
        say(
            f"Building the rollout's environment ({target.name[:12]}) with Python {machine.python_version()}."
        )
        try:
            self._install(target, project, wheel, options, say)
            if not options.sdk_from_index:
                self._verify(target, wheel)
            self._warm_up(target, project)
        except BaseException:
            shutil.rmtree(target, ignore_errors=True)
            raise
        (target / _READY).touch()
        say(f"The environment is ready after {time.monotonic() - started:.1f} s.")

    def _install(
        self, target: Path, project: Project, wheel: SdkWheel, options: BuildOptions, say: Say
    ) -> None:
        code, output = self._uv(
            ["venv", "--quiet", "--python", _base_python(), str(target)], target.parent, options
        )
        if code != 0:
            raise _bad(f"uv could not create the environment: {output}")
        scratch = target / ".build"
        scratch.mkdir()
        (scratch / "pyproject.toml").write_bytes(project.pyproject)
        arguments = ["pip", "install", "--python", str(target / "bin" / "python"), "--no-progress"]
        if project.lock is not None:
            (scratch / "uv.lock").write_bytes(project.lock)
            arguments += ["--requirement", self._locked(scratch, options)]
        else:
            arguments += ["--requirement", str(scratch / "pyproject.toml")]
        if not options.sdk_from_index:
            override = scratch / "override.txt"
            extras = f"[{','.join(project.sdk_extras)}]" if project.sdk_extras else ""
            override.write_text(f"{PACKAGE}{extras} @ {wheel.path.as_uri()}\n")
            arguments += ["--override", str(override)]
            if project.lock is not None:
                arguments += ["--requirement", str(override)]
        self._resolve(arguments, scratch, options, say)
        shutil.rmtree(scratch)

    def _locked(self, scratch: Path, options: BuildOptions) -> str:
        """The versions of the rollout's own lock, without the SDK, as a requirements file."""
        exported = scratch / "locked.txt"
        arguments = ["export", "--quiet", "--frozen", "--no-dev", "--no-emit-project", "--no-hashes"]
        arguments += ["--no-emit-package", PACKAGE, "--output-file", str(exported)]
        code, output = self._uv(arguments, scratch, options)
        if code != 0:
            raise _bad(f"The rollout's uv.lock cannot be used: {output}")
        return str(exported)

    def _resolve(self, arguments: Sequence[str], scratch: Path, options: BuildOptions, say: Say) -> None:
        code, output = self._uv([*arguments, "--offline"], scratch, options)
        if code != 0 and options.index:
            say("Some packages are not cached; downloading them.")
            code, output = self._uv(arguments, scratch, options)
        if code != 0:
            hint = "" if options.index else " The platform may not download packages (OSMOSIS_PACKAGE_INDEX)."
            raise _bad(f"The rollout's dependencies cannot be installed.{hint} uv says: {output}")

    def _uv(self, arguments: Sequence[str], cwd: Path, options: BuildOptions) -> tuple[int, str]:
        from uv import find_uv_bin

        child = self._spawner.start(
            [find_uv_bin(), *arguments], env=_uv_env(), cwd=cwd, on_line=lambda _line: None, name="uv"
        )
        deadline = time.monotonic() + _BUILD_SECONDS
        while child.wait(0.2) is None:
            if options.cancelled() or time.monotonic() > deadline:
                child.kill()
                raise _bad("Building the environment was interrupted, or took longer than 30 minutes.")
        child.finish_reading()
        return child.process.returncode, "\n".join(child.tail).strip()

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

    def _verify(self, target: Path, wheel: SdkWheel) -> None:
        """Make sure that the installed SDK is our wheel, not a package of the same name from elsewhere."""
        question = (
            "import importlib.metadata as m, json; d = m.distribution('osmosis-ai'); "
            "print(json.dumps({'url': json.loads(d.read_text('direct_url.json') or '{}').get('url')}))"
        )
        done = self._spawner.run(
            [str(target / "bin" / "python"), "-I", "-c", question], env=_uv_env(), cwd=target, timeout=60
        )
        url = json.loads(done.stdout)["url"] if done.returncode == 0 else None
        if url != wheel.path.as_uri():
            raise _bad(
                f"The environment's {PACKAGE} is not the platform's own (it came from {url or 'an index'}). Remove "
                f"{PACKAGE} from [tool.uv.sources] of the rollout's pyproject.toml."
            )


def _base_python() -> str:
    """The interpreter outside any virtual environment."""
    base = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    return str(base) if base.exists() else sys.executable


def _base_folders() -> tuple[Path, ...]:
    """The folders of the interpreter that environments are made from."""
    return tuple(dict.fromkeys((Path(sys.base_prefix).resolve(), Path(sys.base_prefix))))


def environment_key(project: Project, wheel: SdkWheel, options: BuildOptions) -> str:
    """The name of an environment: 40 hexadecimal digits."""
    facts = {
        "pyproject": hashlib.sha256(project.pyproject).hexdigest(),
        "lock": hashlib.sha256(project.lock).hexdigest() if project.lock is not None else None,
        "python": sys.version,
        "base": sys.base_prefix,
        "machine": [machine.system(), machine.machine()],
        "sdk": "index" if options.sdk_from_index else wheel.sha256,
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:40]


def _uv_env() -> dict[str, str]:
    """The platform's environment without what belongs to its own interpreter and its own settings."""
    dropped = ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "UV_PYTHON", "UV_PROJECT_ENVIRONMENT")
    env = {
        name: value
        for name, value in os.environ.items()
        if name not in dropped and not name.startswith("OSMOSIS_")
    }
    return {
        **env,
        "UV_PYTHON": _base_python(),
        "UV_PYTHON_DOWNLOADS": "never",
        "NO_COLOR": "1",
    }


@contextmanager
def _shared_lock(path: Path) -> Iterator[None]:
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_SH)
        yield

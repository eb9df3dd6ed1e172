"""Making a rollout's environment with uv, from its project file and the SDK of this installation.

An environment is named by a hash of everything that decides its content: the project file, its lock, the interpreter, the
machine, and the SDK's wheel.
"""

import hashlib
import json
import os
import platform as machine
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from osmosis_ai.environments.errors import EnvironmentFailedError
from osmosis_ai.environments.project import Project
from osmosis_ai.environments.wheel import PACKAGE, SdkWheel

READY = ".ready"

Say = Callable[[str], None]
# Runs a command in a folder to its end: (exit status, its output).
Run = Callable[[Sequence[str], Path], tuple[int, str]]

_QUESTION = (
    "import importlib.metadata as m, json; d = m.distribution('osmosis-ai'); "
    "print(json.dumps({'url': json.loads(d.read_text('direct_url.json') or '{}').get('url')}))"
)


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """`index`: missing packages may be downloaded. `sdk_from_index`: the SDK may come from there too."""

    index: bool = True
    sdk_from_index: bool = False
    cancelled: Callable[[], bool] = field(default=lambda: False)


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


def python_of(environment: Path) -> Path:
    """The interpreter of an environment."""
    return environment / "bin" / "python"


@dataclass(frozen=True, slots=True)
class Builder:
    """Makes environments. ``run`` executes uv and, once, the new interpreter; ``warm_up`` may compile what was installed."""

    wheel: SdkWheel
    options: BuildOptions
    run: Run
    say: Say
    warm_up: Callable[[Path, Project], None] | None = None

    def ensure(self, target: Path, project: Project) -> None:
        """Make the environment at ``target`` unless it is there; nothing half-made stays behind.

        Raises EnvironmentFailedError.
        """
        if (target / READY).is_file():
            return
        shutil.rmtree(target, ignore_errors=True)
        started = time.monotonic()
        self.say(
            f"Building the rollout's environment ({target.name[:12]}) with Python {machine.python_version()}."
        )
        try:
            self._install(target, project)
            if not self.options.sdk_from_index:
                self._verify(target)
            if self.warm_up is not None:
                self.warm_up(target, project)
        except BaseException:
            shutil.rmtree(target, ignore_errors=True)
            raise
        (target / READY).touch()
        self.say(f"The environment is ready after {time.monotonic() - started:.1f} s.")

    def _install(self, target: Path, project: Project) -> None:
        code, output = self._uv(["venv", "--quiet", "--python", base_python(), str(target)], target.parent)
        if code != 0:
            raise EnvironmentFailedError(f"uv could not create the environment: {output}")
        scratch = target / ".build"
        scratch.mkdir()
        (scratch / "pyproject.toml").write_bytes(project.pyproject)
        arguments = ["pip", "install", "--python", str(python_of(target)), "--no-progress"]
        if project.lock is not None:
            (scratch / "uv.lock").write_bytes(project.lock)
            arguments += ["--requirement", self._locked(scratch)]
        else:
            arguments += ["--requirement", str(scratch / "pyproject.toml")]
        if not self.options.sdk_from_index:
            override = scratch / "override.txt"
            extras = f"[{','.join(project.sdk_extras)}]" if project.sdk_extras else ""
            override.write_text(f"{PACKAGE}{extras} @ {self.wheel.path.as_uri()}\n")
            arguments += ["--override", str(override)]
            if project.lock is not None:
                arguments += ["--requirement", str(override)]
        self._resolve(arguments, scratch)
        shutil.rmtree(scratch)

    def _locked(self, scratch: Path) -> str:
        """The versions of the rollout's own lock, without the SDK, as a requirements file."""
        exported = scratch / "locked.txt"
        arguments = ["export", "--quiet", "--frozen", "--no-dev", "--no-emit-project", "--no-hashes"]
        arguments += ["--no-emit-package", PACKAGE, "--output-file", str(exported)]
        code, output = self._uv(arguments, scratch)
        if code != 0:
            raise EnvironmentFailedError(f"The rollout's uv.lock cannot be used: {output}")
        return str(exported)

    def _resolve(self, arguments: Sequence[str], scratch: Path) -> None:
        code, output = self._uv([*arguments, "--offline"], scratch)
        if code != 0 and self.options.index:
            self.say("Some packages are not cached; downloading them.")
            code, output = self._uv(arguments, scratch)
        if code != 0:
            hint = (
                "" if self.options.index else " Packages may not be downloaded here (OSMOSIS_PACKAGE_INDEX)."
            )
            raise EnvironmentFailedError(
                f"The rollout's dependencies cannot be installed.{hint} uv says: {output}"
            )

    def _uv(self, arguments: Sequence[str], cwd: Path) -> tuple[int, str]:
        return self.run([find_uv(), *arguments], cwd)

    def _verify(self, target: Path) -> None:
        """Make sure that the installed SDK is our wheel, not a package of the same name from elsewhere."""
        code, output = self.run([str(python_of(target)), "-I", "-c", _QUESTION], target)
        url = json.loads(output.splitlines()[-1])["url"] if code == 0 else None
        if url != self.wheel.path.as_uri():
            raise EnvironmentFailedError(
                f"The environment's {PACKAGE} is not this installation's own (it came from {url or 'an index'}). "
                f"Remove {PACKAGE} from [tool.uv.sources] of the rollout's pyproject.toml."
            )


def find_uv() -> str:
    """The uv binary: the package's, or one on the PATH. Raises EnvironmentFailedError."""
    try:
        from uv import find_uv_bin

        return str(find_uv_bin())
    except (ImportError, FileNotFoundError):
        found = shutil.which("uv")
    if found is None:
        raise EnvironmentFailedError(
            'uv makes the environments of rollouts and is not installed. Run: pip install "osmosis-ai[eval-run]"'
        )
    return found


def base_python() -> str:
    """The interpreter outside any virtual environment."""
    base = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    return str(base) if base.exists() else sys.executable


def uv_env() -> dict[str, str]:
    """This process's environment without what belongs to its own interpreter and its own settings."""
    dropped = ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "UV_PYTHON", "UV_PROJECT_ENVIRONMENT")
    env = {
        name: value
        for name, value in os.environ.items()
        if name not in dropped and not name.startswith("OSMOSIS_")
    }
    return {**env, "UV_PYTHON": base_python(), "UV_PYTHON_DOWNLOADS": "never", "NO_COLOR": "1"}

"""The Python of bundles inside a sandbox: the host's interpreter and packages, in an environment that bundles install into.

A container image would be built with the requirements of the bundle in ``/opt/osmosis/venv``. A sandbox has no image, so the
same place shows the packages of the environment that the host runs in, read-only; what is installed goes on top of them and
belongs to the sandbox. A bundle brings its SDK, which hides the host's.
"""

import os
import shutil
import sys
import sysconfig
from pathlib import Path

from osmosis_ai.rollout.sandbox.bubblewrap import Mount

RUNTIME_ROOT = Path("/opt/osmosis")
RUNTIME_BIN = f"{RUNTIME_ROOT}/venv/bin"


def base_interpreter() -> Path:
    """The interpreter behind the environment that runs this."""
    return Path(getattr(sys, "_base_executable", None) or sys.executable).resolve()


def prepare_python(root: Path) -> list[Mount]:
    """Write the environment below ``root`` and return what must be mounted for it."""
    mounts: list[Mount] = []
    base = Path(sys.base_prefix).resolve()
    if not base.is_relative_to("/usr"):
        mounts.append((base, str(base), False))
    packages = dict.fromkeys(Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib"))
    shown: list[str] = []
    for number, folder in enumerate(packages):
        if folder.is_dir():
            target = f"{RUNTIME_ROOT}/host-packages-{number}"
            mounts.append((folder, target, False))
            shown.append(target)
    # Without uv, bundles are installed by the pip that comes with Python.
    shown += [str(path) for path in base.glob("lib/python*/ensurepip/_bundled/pip-*.whl")]
    _write_environment(root / RUNTIME_ROOT.relative_to("/") / "venv", shown)
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if uv is not None:
        mounts.append((Path(uv).resolve(), f"{RUNTIME_ROOT}/bin/uv", False))
    return mounts


def _write_environment(venv: Path, shown: list[str]) -> None:
    interpreter = base_interpreter()
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    packages = venv / "lib" / f"python{version}" / "site-packages"
    packages.mkdir(parents=True)
    (venv / "bin").mkdir()
    for name in ("python", "python3", f"python{version}"):
        (venv / "bin" / name).symlink_to(interpreter)
    (venv / "pyvenv.cfg").write_text(
        f"home = {interpreter.parent}\ninclude-system-site-packages = false\nversion = {version}\n"
    )
    (packages / "host.pth").write_text("".join(f"{path}\n" for path in shown))

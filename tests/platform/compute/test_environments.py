"""Environments of rollouts: really built by uv, from local wheels only."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import zipfile
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import pytest

from osmosis_ai.environments.build import BuildOptions, environment_key
from osmosis_ai.environments.errors import EnvironmentFailedError
from osmosis_ai.environments.project import read_project
from osmosis_platform.compute import environments
from osmosis_platform.compute.children import Spawner
from osmosis_platform.compute.environments import UvEnvironments
from osmosis_platform.compute.failures import RunFailed
from osmosis_platform.compute.sandbox import choose_sandbox
from osmosis_platform.compute.wheel import SdkWheel, sdk_wheel
from osmosis_platform.settings import Settings

OFFLINE = BuildOptions(index=False)


def tiny_wheel(folder: Path, name: str, version: str = "1.0", extras: str = "") -> Path:
    """A wheel without dependencies; with `extras`, one optional dependency."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    dashed = name.replace("_", "-")
    provides = f"Provides-Extra: server\nRequires-Dist: {extras} ; extra == 'server'\n" if extras else ""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}/__init__.py", f"NAME = {name!r}\n")
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {dashed}\nVersion: {version}\n{provides}"
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture
def spawner() -> Iterator[Spawner]:
    spawner = Spawner()
    yield spawner
    spawner.close()


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with wheels that takes the place of the package index."""
    folder = tmp_path / "shelf"
    folder.mkdir()
    tiny_wheel(folder, "helping_hand")
    tiny_wheel(folder, "osmosis_ai", "99.0")  # of the same name, from elsewhere
    for name in list(os.environ):
        if name.startswith("UV_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("UV_FIND_LINKS", str(folder))
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    return folder


@pytest.fixture
def sdk(tmp_path: Path) -> SdkWheel:
    folder = tmp_path / "sdk"
    folder.mkdir()
    path = tiny_wheel(folder, "osmosis_ai", "0.3.0", extras="helping-hand")
    return SdkWheel(path, hashlib.sha256(path.read_bytes()).hexdigest())


@pytest.fixture
def builder(tmp_path: Path, sdk: SdkWheel, spawner: Spawner) -> UvEnvironments:
    return UvEnvironments(tmp_path / "environments", lambda: sdk, spawner, choose_sandbox("auto"))


def project(tmp_path: Path, dependencies: list[str], more: str = "", name: str = "project") -> Path:
    folder = tmp_path / name
    folder.mkdir(exist_ok=True)
    content = f'[project]\nname = "mul"\nversion = "0"\ndependencies = {json.dumps(dependencies)}\n{more}'
    (folder / "pyproject.toml").write_text(content)
    return folder


def test_the_sdk_and_its_extras_are_the_platforms_own(
    builder: UvEnvironments, tmp_path: Path, shelf: Path, spawner: Spawner
) -> None:
    said: list[str] = []
    folder = project(tmp_path, ["osmosis-ai[server]>=0.1"])
    with builder.use(folder, OFFLINE, said.append) as environment:
        script = "import osmosis_ai, helping_hand, importlib.metadata as m; print(m.version('osmosis-ai'))"
        done = spawner.run([str(environment.python), "-c", script], env={}, cwd=tmp_path, timeout=30)
    assert done.stdout == "0.3.0\n", done.stderr
    assert said[0].startswith("Building the rollout's environment")
    site = environment.python.parent.parent / "lib"
    assert list(site.rglob("osmosis_ai/__pycache__/*.pyc")), "the import of a run needs no compilation"
    said.clear()
    with builder.use(folder, OFFLINE, said.append) as again:
        assert again == environment
    assert said == [], "the second run builds nothing"


def test_what_cannot_be_resolved_is_told_in_uvs_words(
    builder: UvEnvironments, tmp_path: Path, shelf: Path
) -> None:
    folder = project(tmp_path, ["osmosis-ai", "no-such-package-here>=7"])
    with pytest.raises(RunFailed, match="cannot be installed") as caught:
        with builder.use(folder, OFFLINE, lambda line: None):
            pass
    assert "no-such-package-here" in caught.value.message
    assert not list((tmp_path / "environments").glob("*/bin")), "nothing half-built is left"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no pyproject.toml"),
        ("[project", "cannot be read"),
        ('[project]\nname="a"\nversion="0"\n', "does not depend on osmosis-ai"),
        (
            '[project]\nname="a"\nversion="0"\nrequires-python=">=3.99"\ndependencies=["osmosis-ai"]\n',
            "requires Python >=3.99",
        ),
        (
            '[project]\nname="a"\nversion="0"\ndependencies=["osmosis-ai", "???"]\n',
            "has the dependency '\\?\\?\\?'",
        ),
    ],
)
def test_project_files_that_cannot_work(tmp_path: Path, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / "pyproject.toml").write_text(content)
    with pytest.raises(EnvironmentFailedError, match=message):
        read_project(tmp_path)


def test_the_key_depends_on_everything_that_decides_the_content(tmp_path: Path, sdk: SdkWheel) -> None:
    folder = project(tmp_path, ["osmosis-ai"])
    keys = {environment_key(read_project(folder), sdk, OFFLINE)}
    keys.add(environment_key(read_project(folder), SdkWheel(sdk.path, "0" * 64), OFFLINE))
    keys.add(environment_key(read_project(folder), sdk, BuildOptions(sdk_from_index=True)))
    (folder / "uv.lock").write_text("version = 1")
    keys.add(environment_key(read_project(folder), sdk, OFFLINE))
    project(tmp_path, ["osmosis-ai", "helping-hand"])
    keys.add(environment_key(read_project(folder), sdk, OFFLINE))
    assert len(keys) == 5
    (folder / "main.py").write_text("code does not count")
    assert environment_key(read_project(folder), sdk, OFFLINE) in keys


def test_the_least_recently_used_goes_and_one_in_use_stays(
    builder: UvEnvironments, tmp_path: Path, shelf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environments, "KEEP", 1)
    first = project(tmp_path, ["osmosis-ai"], name="first")
    second = project(tmp_path, ["osmosis-ai", "helping-hand"], name="second")
    with builder.use(first, OFFLINE, lambda line: None) as used:
        with builder.use(second, OFFLINE, lambda line: None) as other:
            pass
        assert used.python.exists()
    with builder.use(second, OFFLINE, lambda line: None):
        pass
    assert other.python.exists()
    assert not used.python.exists()


def test_the_real_sdk_packs_to_the_same_bytes_twice(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    wheel = sdk_wheel(settings)
    assert sdk_wheel(settings) == wheel
    assert wheel.path.name == f"osmosis_ai-{distribution('osmosis-ai').version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel.path) as archive:
        names = archive.namelist()
        metadata = archive.read(next(name for name in names if name.endswith("METADATA"))).decode()
    assert "osmosis_ai/rollout/__init__.py" in names
    assert "osmosis_ai/py.typed" in names
    assert not [name for name in names if name.endswith(".pyc")]
    assert "Provides-Extra: server" in metadata


@pytest.mark.slow
def test_a_lock_decides_the_versions_but_not_the_sdk(
    builder: UvEnvironments, tmp_path: Path, shelf: Path, spawner: Spawner
) -> None:
    from uv import find_uv_bin

    folder = project(tmp_path, ["osmosis-ai[server]", "helping-hand"], 'requires-python = ">=3.12"\n')
    env = {**os.environ, "UV_PYTHON_DOWNLOADS": "never", "UV_PYTHON": sys.executable}
    done = spawner.run([find_uv_bin(), "lock", "--offline"], env=env, cwd=folder, timeout=60)
    assert done.returncode == 0, done.stderr
    tiny_wheel(shelf, "helping_hand", "2.0")
    question = "import importlib.metadata as m; print(m.version('helping-hand'), m.version('osmosis-ai'))"
    with builder.use(folder, OFFLINE, lambda line: None) as environment:
        done = spawner.run([str(environment.python), "-c", question], env={}, cwd=tmp_path, timeout=30)
    assert done.stdout == "1.0 0.3.0\n", done.stderr
    (folder / "uv.lock").unlink()
    with builder.use(folder, OFFLINE, lambda line: None) as environment:
        done = spawner.run([str(environment.python), "-c", question], env={}, cwd=tmp_path, timeout=30)
    assert done.stdout == "2.0 0.3.0\n", "without a lock the newest version is taken"

"""Reading the project that a bundle is made of."""

import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from osmosis_ai.packaging.errors import BundleError

_LEFT_OUT = {"__pycache__", ".git", ".DS_Store"}


@dataclass(frozen=True, slots=True)
class Project:
    """The name and version of a project, its dependencies (None when a build would decide them), and its one package."""

    name: str
    version: Version
    requires_python: str | None
    dependencies: tuple[str, ...] | None
    package: Path


def read_project(code_dir: Path, package: str | None = None) -> Project:
    """Read ``pyproject.toml`` and find the package; ``package`` names it where the project has several.

    Raises:
        BundleError: when the file is missing or broken, or the package is missing or ambiguous.
    """
    path = code_dir / "pyproject.toml"
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BundleError(f"{code_dir} has no pyproject.toml; a bundle is made of a Python project") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BundleError(f"cannot read {path}: {error}") from error
    found = _find_package(code_dir, package)
    table: dict[str, Any] = content.get("project", {})
    dynamic = table.get("dynamic", [])
    name = str(table.get("name", found.name))
    try:
        version = Version(str(table.get("version", "0")))
    except InvalidVersion as error:
        raise BundleError(f"{path}: project.version: {error}") from error
    dependencies = None if "dependencies" in dynamic else tuple(table.get("dependencies", []))
    return Project(name, version, table.get("requires-python"), dependencies, found)


def package_files(package: Path) -> Iterator[tuple[str, bytes]]:
    """Every file of a package by its path in a wheel, sorted.

    Raises:
        BundleError: for a link to a folder or to a file outside the project, and for anything that is neither file nor folder.
    """
    root = package.parent
    for path in sorted(_walk(package)):
        if path.is_symlink() and not path.resolve().is_relative_to(root.resolve()):
            raise BundleError(f"{path} is a symlink that leads out of the project; put the file itself there")
        if not path.is_file():
            raise BundleError(f"{path} is no regular file; a bundle can hold files and folders only")
        yield path.relative_to(root).as_posix(), path.read_bytes()


def _walk(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.name in _LEFT_OUT or path.suffix == ".pyc":
            continue
        if path.is_dir():
            if path.is_symlink() or path.is_junction():
                raise BundleError(f"{path} is a directory symlink; put the directory itself into the package")
            yield from _walk(path)
        else:
            yield path


def _find_package(code_dir: Path, wanted: str | None) -> Path:
    packages = list(_packages(code_dir / "src")) or list(_packages(code_dir))
    if wanted is not None:
        packages = [path for path in packages if path.name == wanted]
        if not packages:
            raise BundleError(
                f"{code_dir} has no package '{wanted}'; it would be a folder with an __init__.py, there or below src/"
            )
    if not packages:
        raise BundleError(
            f"{code_dir} has no Python package; put the workflow into a folder with an __init__.py, there or below src/"
        )
    if len(packages) > 1:
        raise BundleError(
            f"{code_dir} has several packages ({_names(packages)}); a bundle is made of exactly one: name it with package="
        )
    package = packages[0]
    if package.is_symlink() or package.is_junction():
        raise BundleError(f"{package} is a directory symlink; put the directory itself into the project")
    return package


def _packages(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        for path in sorted(folder.iterdir()):
            if path.name.isidentifier() and (path / "__init__.py").is_file():
                yield path


def _names(paths: Iterable[Path]) -> str:
    return ", ".join(path.name for path in paths)

"""A bundle: a wheel with a project's package, the SDK, and a program each for its workflow and its grader."""

import configparser
import hashlib
import os
import uuid
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from email.parser import BytesParser
from pathlib import Path
from typing import Any

# Bundles are for Harbor; without it the import says which extra brings it.
import harbor as harbor
from packaging.utils import canonicalize_name

from osmosis_ai.environments.wheel import sdk_files, write_wheel
from osmosis_ai.packaging.errors import BundleError
from osmosis_ai.packaging.project import Project, package_files, read_project
from osmosis_ai.packaging.requirements import container_requirements
from osmosis_ai.rollout.utils.imports import ensure_import_path

__all__ = ["BundleError", "BundleInfo", "build_bundle", "inspect_bundle"]

_PROGRAMS = '''"""The programs of the bundle."""

from osmosis_ai.rollout.container.runner import agent_main, grader_main


def agent() -> None:
    agent_main({workflow!r}, {workflow_config!r})


def grade() -> None:
    grader_main({grader!r}, {grader_config!r})
'''


@dataclass(frozen=True, slots=True)
class BundleInfo:
    """A bundle's wheel, the names of its programs (None: it has none), and what a container must install beside it."""

    wheel: Path
    agent_script: str | None
    grader_script: str | None
    requirements: list[str]


def build_bundle(
    code_dir: Path | str,
    *,
    workflow: Any = None,
    grader: Any = None,
    workflow_config: Any = None,
    grader_config: Any = None,
    deps: Iterable[str] | None = None,
    package: str | None = None,
    bundles_dir: Path | str | None = None,
) -> Path:
    """Make the wheel of a project, or find it: the same content is always the same file.

    ``workflow``, ``grader`` and their configs are ``module:attr`` texts, or objects that can be named so, inside the project's
    one package (``package`` names it where there are several). ``deps`` replaces the project's dependencies.
    ``bundles_dir`` defaults to ``bundles`` below the user's cache folder.

    Raises:
        BundleError: when the project cannot become a bundle; says what to change.
        OSError: when the project cannot be read or the wheel not be written.
    """
    project = read_project(Path(code_dir), package)
    files = dict(package_files(project.package))
    refs = {
        "workflow": workflow,
        "workflow_config": workflow_config,
        "grader": grader,
        "grader_config": grader_config,
    }
    if workflow is None and grader is None:
        raise BundleError("a bundle needs a workflow, a grader, or both")
    named = {role: _reference(role, ref, project, files) for role, ref in refs.items()}
    if (wanted := deps if deps is not None else project.dependencies) is None:
        raise BundleError(
            f"{code_dir}/pyproject.toml leaves its dependencies to the build; list them there, or pass deps="
        )
    requirements = container_requirements(wanted)
    programs = f"_{project.package.name}_programs"
    entries = {**dict(sorted(sdk_files())), **files, f"{programs}.py": _PROGRAMS.format(**named).encode()}
    metadata = _metadata(project, requirements)
    scripts = _scripts(project.package.name, programs, named)
    digest = _digest(entries, metadata, scripts)

    name = canonicalize_name(project.name).replace("-", "_")
    version = f"{project.version.public}+{digest[:16]}"
    target = _folder(bundles_dir) / f"{name}-{version}-py3-none-any.whl"
    if target.is_file():
        return target
    info = f"{name}-{version}.dist-info"
    entries[f"{info}/METADATA"] = metadata.replace("Version: \n", f"Version: {version}\n").encode()
    entries[f"{info}/entry_points.txt"] = scripts.encode()
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{uuid.uuid4().hex}.whl")
    try:
        write_wheel(partial, info, entries)
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)
    return target


def inspect_bundle(wheel: Path | str) -> BundleInfo:
    """What is in a bundle, read from the wheel itself.

    Raises:
        BundleError: when the file is no wheel, or has neither an agent's nor a grader's program.
    """
    wheel = Path(wheel)
    try:
        with zipfile.ZipFile(wheel) as archive:
            metadata = BytesParser().parsebytes(_member(archive, "METADATA"))
            points = configparser.RawConfigParser(delimiters=("=",))
            points.optionxform = str  # type: ignore[assignment,method-assign]  # names keep their case
            points.read_string(_member(archive, "entry_points.txt").decode())
    except (OSError, KeyError, ValueError, zipfile.BadZipFile, configparser.Error) as error:
        raise BundleError(f"{wheel} is no bundle: {error}; make one with build_bundle") from error
    names = list(points["console_scripts"]) if points.has_section("console_scripts") else []
    agent = next((name for name in names if name.endswith("-agent")), None)
    grade = next((name for name in names if name.endswith("-grade")), None)
    if agent is None and grade is None:
        raise BundleError(f"{wheel} is no bundle: it has no -agent and no -grade program")
    return BundleInfo(wheel, agent, grade, list(metadata.get_all("Requires-Dist", [])))


def _reference(role: str, ref: Any, project: Project, files: Mapping[str, bytes]) -> str | None:
    if ref is None:
        return None
    try:
        text = ensure_import_path(ref)
    except ValueError as error:
        raise BundleError(f"{role}: {error}") from error
    module = text.partition(":")[0].replace(".", "/")
    if f"{module}.py" not in files and f"{module}/__init__.py" not in files:
        raise BundleError(
            f"{role} {text!r} is not in the package '{project.package.name}' of {project.package.parent}; "
            f"a container gets that package only, so refer to '{project.package.name}.<module>:<name>'"
        )
    return text


def _metadata(project: Project, requirements: Iterable[str]) -> str:
    lines = ["Metadata-Version: 2.1", f"Name: {project.name}", "Version: "]
    if project.requires_python is not None:
        lines.append(f"Requires-Python: {project.requires_python}")
    return "\n".join([*lines, *(f"Requires-Dist: {requirement}" for requirement in requirements)]) + "\n"


def _scripts(package: str, programs: str, named: Mapping[str, str | None]) -> str:
    prefix = package.replace("_", "-")
    lines = ["[console_scripts]"]
    if named["workflow"] is not None:
        lines.append(f"{prefix}-agent = {programs}:agent")
    if named["grader"] is not None:
        lines.append(f"{prefix}-grade = {programs}:grade")
    return "\n".join(lines) + "\n"


def _digest(entries: Mapping[str, bytes], *texts: str) -> str:
    total = hashlib.sha256()
    for path, content in entries.items():
        total.update(f"{path}\0{hashlib.sha256(content).hexdigest()}\n".encode())
    for text in texts:
        total.update(hashlib.sha256(text.encode()).digest())
    return total.hexdigest()


def _folder(bundles_dir: Path | str | None) -> Path:
    if bundles_dir is not None:
        return Path(bundles_dir)
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "osmosis" / "bundles"


def _member(archive: zipfile.ZipFile, name: str) -> bytes:
    for path in archive.namelist():
        if path.endswith(f".dist-info/{name}") and path.count("/") == 1:
            return archive.read(path)
    raise KeyError(f"no {name} in it")

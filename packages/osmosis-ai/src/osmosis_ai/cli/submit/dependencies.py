"""Whether the dependencies that a rollout declares are installed here."""

import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from osmosis_ai.cli.errors import CLIError

_DEPTH = 3  # extras of extras; deeper nesting does not occur in practice and would only cost time


def unmet_dependencies(project: Path) -> list[str]:
    """Declared requirements that are not installed, or in another version. Requirements by address are not judged.

    Raises:
        CLIError: the project file is no valid TOML.
    """
    if not project.is_file():
        return []
    try:
        declared = (
            tomllib.loads(project.read_text(encoding="utf-8")).get("project", {}).get("dependencies", [])
        )
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CLIError(f"Invalid TOML in {project}: {error}", details={"path": str(project)}) from error
    unmet: list[str] = []
    for text in declared:
        try:
            requirement = Requirement(text)
        except InvalidRequirement as error:
            raise CLIError(
                f"Invalid dependency {text!r} in {project}: {error}", details={"path": str(project)}
            ) from error
        if not _met(requirement, _DEPTH):
            unmet.append(text)
    return unmet


def _met(requirement: Requirement, depth: int) -> bool:
    if requirement.url is not None or (
        requirement.marker is not None and not requirement.marker.evaluate({"extra": ""})
    ):
        return True
    try:
        found = distribution(requirement.name)
    except PackageNotFoundError:
        return False
    if not requirement.specifier.contains(found.version, prereleases=True):
        return False
    return depth == 0 or all(
        _met(needed, depth - 1) for needed in _of_extras(found.requires or [], requirement.extras)
    )


def _of_extras(requires: list[str], extras: set[str]) -> list[Requirement]:
    """What the chosen extras add; their markers are resolved here, so they are dropped."""
    needed: list[Requirement] = []
    for text in requires:
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is None or marker.evaluate({"extra": ""}):
            continue
        if any(marker.evaluate({"extra": extra}) for extra in extras):
            requirement.marker = None
            needed.append(requirement)
    return needed

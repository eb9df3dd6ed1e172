"""What decides the content of a rollout's environment."""

import platform as machine
import tomllib
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from osmosis_ai.environments.errors import EnvironmentFailedError
from osmosis_ai.environments.wheel import PACKAGE


@dataclass(frozen=True, slots=True)
class Project:
    """A rollout's project file, its lock, and what the project file asks for."""

    folder: Path
    pyproject: bytes
    lock: bytes | None
    sdk_extras: tuple[str, ...]
    requirements: tuple[str, ...]


def read_project(folder: Path) -> Project:
    """Read the project file of a rollout; raises EnvironmentFailedError with what to write."""
    path = folder / "pyproject.toml"
    try:
        raw = path.read_bytes()
        content = tomllib.loads(raw.decode())
    except FileNotFoundError:
        raise EnvironmentFailedError(
            "The rollout has no pyproject.toml; add one with osmosis-ai among its dependencies."
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise EnvironmentFailedError(f"The rollout's pyproject.toml cannot be read: {error}") from error
    table = content.get("project", {})
    _check_python(table.get("requires-python"))
    extras: set[str] = set()
    names: list[str] = []
    for text in table.get("dependencies", []):
        try:
            requirement = Requirement(text)
        except (InvalidRequirement, TypeError) as error:
            raise EnvironmentFailedError(
                f"The rollout's pyproject.toml has the dependency {text!r}: {error}"
            ) from error
        names.append(requirement.name.lower().replace("_", "-"))
        if names[-1] == PACKAGE:
            extras |= requirement.extras
    if PACKAGE not in names:
        raise EnvironmentFailedError(
            f"The rollout's pyproject.toml does not depend on {PACKAGE}; add "
            f'"{PACKAGE}[server]" to its dependencies.'
        )
    lock = folder / "uv.lock"
    locked = lock.read_bytes() if lock.is_file() else None
    return Project(folder, raw, locked, tuple(sorted(extras)), tuple(names))


def _check_python(wanted: object) -> None:
    if wanted is None:
        return
    try:
        fits = SpecifierSet(str(wanted)).contains(machine.python_version(), prereleases=True)
    except InvalidSpecifier as error:
        raise EnvironmentFailedError(
            f"The rollout's requires-python {wanted!r} is not valid: {error}"
        ) from error
    if not fits:
        raise EnvironmentFailedError(
            f"The rollout requires Python {wanted}; it would run with {machine.python_version()} here."
        )

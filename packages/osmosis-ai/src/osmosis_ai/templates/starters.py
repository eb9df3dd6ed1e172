"""Starter rollouts of the workspace template."""

from dataclasses import dataclass
from pathlib import Path

from osmosis_ai.templates.errors import TemplateError
from osmosis_ai.templates.source import template_files, workspace_source
from osmosis_ai.templates.writing import check_inside, check_replaceable, write_files

STARTERS = ("multiply-local-openai", "multiply-local-strands", "multiply-harbor-strands")
_SHARED_DATA = "data/multiply.jsonl"


@dataclass(frozen=True, slots=True)
class AppliedStarter:
    """What ``apply_starter`` wrote: the absolute destinations it owns and the relative paths of all files."""

    name: str
    destinations: list[Path]
    files: list[str]


def require_known(name: str) -> None:
    """Check the name of a starter.

    Raises:
        TemplateError: there is none of that name (``NOT_FOUND``).
    """
    if name not in STARTERS:
        raise TemplateError(
            f"Unknown template '{name}'. Available: {', '.join(sorted(STARTERS))}.",
            code="NOT_FOUND",
            details={"name": name, "available": sorted(STARTERS)},
        )


def starter_files(name: str, source: Path) -> list[str]:
    """The template-relative paths of a starter.

    Raises:
        TemplateError: unknown name, or the template folder lacks a part (``NOT_FOUND``).
    """
    require_known(name)
    files = template_files(source, f"rollouts/{name}")
    files += [f"configs/eval/{name}.toml", f"configs/training/{name}.toml", _SHARED_DATA]
    missing = [path for path in files if not (source / path).is_file()]
    if missing or not files[0].startswith("rollouts/"):
        raise TemplateError(
            f"The template folder {source} lacks files of '{name}': {', '.join(missing) or f'rollouts/{name}/'}",
            code="NOT_FOUND",
            details={"path": str(source)},
        )
    return files


def apply_starter(name: str, workspace_dir: Path, *, force: bool = False) -> AppliedStarter:
    """Copy a starter into a workspace. An identical shared data file is left alone.

    Raises:
        TemplateError: unknown name (``NOT_FOUND``); something is in the way (``CONFLICT``); a target lies outside
            (``VALIDATION``). Nothing is changed then.
    """
    require_known(name)
    source = workspace_source()
    files = starter_files(name, source)
    contents = {path: (source / path).read_bytes() for path in files}
    shared = workspace_dir / _SHARED_DATA
    if shared.is_file() and shared.read_bytes() == contents[_SHARED_DATA]:
        del contents[_SHARED_DATA]
    owned = f"rollouts/{name}"
    check_inside(workspace_dir, contents)
    outside_owned = [path for path in contents if not path.startswith(f"{owned}/")]
    taken = [path for path in (f"{owned}/", *outside_owned) if _exists(workspace_dir / path)]
    if taken and not force:
        listing = "\n".join(f"  {path}" for path in taken)
        raise TemplateError(
            f"These paths exist already:\n{listing}\nUse --force to replace the files of this template.",
            code="CONFLICT",
            details={"paths": taken},
        )
    check_replaceable(workspace_dir, owned, outside_owned)
    write_files(workspace_dir, owned, contents)
    destinations = [owned, f"configs/eval/{name}.toml", f"configs/training/{name}.toml", _SHARED_DATA]
    return AppliedStarter(name, [workspace_dir / path for path in destinations], files)


def _exists(path: Path) -> bool:
    return path.exists() or path.is_symlink()

"""Where template files come from: the package itself, or a folder that the user names."""

import os
import shutil
from pathlib import Path

from osmosis_ai.templates.errors import TemplateError

PATH_VARIABLE = "OSMOSIS_WORKSPACE_TEMPLATE_PATH"
AGENT_FILES = ("AGENTS.md", "CLAUDE.md", "configs/AGENTS.md")
_IGNORED = shutil.ignore_patterns("__pycache__", "*.pyc", "*.egg-info", ".git")
_PACKAGED = Path(__file__).parent / "workspace"


def workspace_source() -> Path:
    """The folder that holds the workspace template.

    Raises:
        TemplateError: ``OSMOSIS_WORKSPACE_TEMPLATE_PATH`` names no folder (``NOT_FOUND``).
    """
    override = os.environ.get(PATH_VARIABLE, "").strip()
    if not override:
        return _PACKAGED
    folder = Path(override).expanduser()
    if not folder.is_dir():
        raise TemplateError(
            f"{PATH_VARIABLE} names no folder: {folder}", code="NOT_FOUND", details={"path": str(folder)}
        )
    return folder.resolve()


def write_workspace(target: Path) -> list[str]:
    """Copy the whole workspace template into a missing folder, or one with nothing but ``.git``; returns the paths written.

    Raises:
        TemplateError: the folder has files already (``CONFLICT``).
    """
    if target.exists() and any(entry.name != ".git" for entry in target.iterdir()):
        raise TemplateError(f"{target} is not empty; a new workspace needs an empty folder.", code="CONFLICT")
    source = workspace_source()
    shutil.copytree(source, target, ignore=_IGNORED, dirs_exist_ok=True, symlinks=True)
    link_skills(target)
    return template_files(source, ".")


def link_skills(workspace_dir: Path) -> None:
    """Make ``.claude/skills/<name>`` a link to each ``.agents/skills/<name>``: some assistants look there. A package cannot
    carry links, so they are made here; where links are not possible the folder is copied."""
    for skill in sorted((workspace_dir / ".agents" / "skills").glob("*/SKILL.md")):
        name = skill.parent.name
        link = workspace_dir / ".claude" / "skills" / name
        link.parent.mkdir(parents=True, exist_ok=True)
        if link.exists() or link.is_symlink():
            continue
        try:
            link.symlink_to(Path("..", "..", ".agents", "skills", name), target_is_directory=True)
        except OSError:
            shutil.copytree(skill.parent, link)


def template_files(source: Path, folder: str) -> list[str]:
    """Relative paths of the files below a folder of the template, sorted, without caches."""
    return sorted(
        path.relative_to(source).as_posix()
        for path in (source / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and not path.name.endswith(".pyc")
    )

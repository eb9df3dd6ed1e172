"""Where template files come from: the package itself, or a folder or repository that the user names."""

import os
import shutil
from pathlib import Path

from osmosis_ai.templates.errors import TemplateError

PATH_VARIABLE = "OSMOSIS_WORKSPACE_TEMPLATE_PATH"
REPOSITORY_VARIABLE = "OSMOSIS_WORKSPACE_TEMPLATE_REPO"
REF_VARIABLE = "OSMOSIS_WORKSPACE_TEMPLATE_REF"
_DEFAULT_REPOSITORY, _DEFAULT_REF = "Osmosis-AI/workspace-template", "main"
AGENT_FILES = ("AGENTS.md", "CLAUDE.md", "configs/AGENTS.md")
_IGNORED = shutil.ignore_patterns("__pycache__", "*.pyc", "*.egg-info", ".git")
_PACKAGED = Path(__file__).parent / "workspace"


def workspace_source(*, fresh: bool = False) -> Path:
    """The folder that holds the workspace template: the one named, that of the repository named, or the packaged one.

    With ``fresh`` a repository is fetched again.

    Raises:
        TemplateError: ``OSMOSIS_WORKSPACE_TEMPLATE_PATH`` names no folder (``NOT_FOUND``), or the repository cannot be fetched
            (``NETWORK``) or used.
    """
    if _setting(PATH_VARIABLE) is None:
        repository, ref = _setting(REPOSITORY_VARIABLE), _setting(REF_VARIABLE)
        if repository is not None or ref is not None:
            from osmosis_ai.templates.archive import repository_template

            return repository_template(repository or _DEFAULT_REPOSITORY, ref or _DEFAULT_REF, fresh=fresh)
    return _local_source()


def _local_source() -> Path:
    override = _setting(PATH_VARIABLE)
    if override is None:
        return _PACKAGED
    folder = Path(override).expanduser()
    if not folder.is_dir():
        raise TemplateError(
            f"{PATH_VARIABLE} names no folder: {folder}", code="NOT_FOUND", details={"path": str(folder)}
        )
    return folder.resolve()


def _setting(variable: str) -> str | None:
    return os.environ.get(variable, "").strip() or None


def write_workspace(target: Path) -> list[str]:
    """Copy the whole workspace template into a missing folder, or one with nothing but ``.git``; returns the paths written.

    Raises:
        TemplateError: the folder has files already (``CONFLICT``).
    """
    if target.exists() and any(entry.name != ".git" for entry in target.iterdir()):
        raise TemplateError(f"{target} is not empty; a new workspace needs an empty folder.", code="CONFLICT")
    source = _local_source()  # the platform calls this, and does not wait for another host
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

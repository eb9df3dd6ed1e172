"""Writing template files into a workspace: all checks come before the first change."""

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from osmosis_ai.templates.errors import TemplateError


def check_inside(workspace_dir: Path, relative_paths: Iterable[str]) -> None:
    """Refuse paths that a symlink leads out of the workspace.

    Raises:
        TemplateError: a path resolves outside (``VALIDATION``).
    """
    root = workspace_dir.resolve()
    for relative in relative_paths:
        if not (root / relative).resolve().is_relative_to(root):
            raise TemplateError(
                f"{relative} leads outside the workspace directory {root}.", details={"path": relative}
            )


def check_replaceable(workspace_dir: Path, folder: str, files: Iterable[str]) -> None:
    """Refuse to replace what is not a plain folder or plain files of ours.

    Raises:
        TemplateError: the owned folder is a symlink or a file, or an owned file is a symlink or a folder (``CONFLICT``).
    """
    owned = workspace_dir / folder
    if owned.is_symlink() or (owned.exists() and not owned.is_dir()):
        raise TemplateError(
            f"{folder}/ is not a plain folder; move it away first.", code="CONFLICT", details={"path": folder}
        )
    for relative in files:
        target = workspace_dir / relative
        if target.is_symlink() or (target.exists() and not target.is_file()):
            raise TemplateError(
                f"{relative} is not a plain file; move it away first.",
                code="CONFLICT",
                details={"path": relative},
            )


def write_files(workspace_dir: Path, owned_folder: str, contents: Mapping[str, bytes]) -> None:
    """Replace the owned folder and write the files."""
    folder = workspace_dir / owned_folder
    if folder.exists():
        shutil.rmtree(folder)
    for relative, content in contents.items():
        target = workspace_dir / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)

"""Checking and repairing a workspace directory."""

from pathlib import Path
from typing import Any

from osmosis_ai.cli.errors import CLIError
from osmosis_ai.cli.git import worktree_root
from osmosis_ai.cli.identity import Identity, origin_identity
from osmosis_ai.cli.output.messages import warn
from osmosis_ai.cli.output.results import OperationResult
from osmosis_ai.cli.workspace import CONTRACT_FOLDERS
from osmosis_ai.errors import OsmosisError
from osmosis_ai.platform.auth.current import current_token
from osmosis_ai.platform.urls import platform_url
from osmosis_ai.templates.source import AGENT_FILES, workspace_source

REQUIRED_PATHS = [f"{folder}/" for folder in CONTRACT_FOLDERS]


def check_workspace(path: str, *, fix: bool) -> OperationResult:
    """Report what is missing; with ``fix`` create it. Nothing that exists is ever changed."""
    start = Path(path).resolve()
    root = worktree_root(start if start.is_dir() else start.parent)
    missing = missing_paths(root)
    fixed = bool(fix and missing)
    if fixed:
        repair(root, missing)
        missing = missing_paths(root)
    git, identity = _git(root)
    workspace = _linked_workspace(identity)
    resource = {
        "workspace_directory": str(root),
        "git": git,
        "workspace": workspace,
        "required_paths": REQUIRED_PATHS,
        "missing": missing,
        "valid": not missing,
        "fixed": fixed,
    }
    return OperationResult(
        "doctor",
        status="failed" if missing else "success",
        resource=resource,
        message="Workspace doctor found missing scaffold paths."
        if missing
        else "Workspace doctor completed.",
        next_text=_report(resource),
    )


def missing_paths(root: Path) -> list[str]:
    """Required folders (with a slash) and agent files that are not there, in a fixed order."""
    folders = [path for path in REQUIRED_PATHS if not (root / path).is_dir()]
    return folders + [name for name in AGENT_FILES if not (root / name).is_file()]


def repair(root: Path, missing: list[str]) -> None:
    """Create the missing paths: folders with a ``.gitkeep``, agent files from the template.

    Raises:
        CLIError: a symlink or a file is in the way (``CONFLICT``), the template lacks a file (``NOT_FOUND``), or something cannot be
            written.
        TemplateError: the template cannot be had.
    """
    for name in {
        *REQUIRED_PATHS,
        *missing,
    }:  # what is to be a folder of the repository may not lead out of it
        _require_free(root, name, there=name not in missing)
    files = [name for name in missing if not name.endswith("/")]
    source = workspace_source(fresh=True) if files else None
    contents = {name: _template_file(source, name) for name in files if source is not None}
    for name in missing:
        try:
            _create(root / name, contents.get(name))
        except OSError as error:
            raise CLIError(
                f"{root / name} cannot be created: {error.strerror}.", details={"path": str(root / name)}
            ) from error


def _create(path: Path, content: bytes | None) -> None:
    """A folder with a ``.gitkeep``, or a file."""
    if content is None:
        path.mkdir(parents=True)
        (path / ".gitkeep").touch()
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _require_free(root: Path, name: str, *, there: bool) -> None:
    """Refuse a symlink anywhere on the way, and a file where a folder belongs; a folder that is ``there`` may stay."""
    target = root / name
    for part in (target, *target.parents):
        if part == root:
            return
        if part.is_symlink() or (part.exists() and (not part.is_dir() or (part == target and not there))):
            raise CLIError(
                f"{part} is in the way: it is a symlink or of the wrong kind. Move it away first.",
                code="CONFLICT",
            )


def _template_file(source: Path, name: str) -> bytes:
    path = source / name
    if not path.is_file():
        raise CLIError(
            f"The template folder {path.parent} lacks {name}.", code="NOT_FOUND", details={"path": str(path)}
        )
    return path.read_bytes()


def _git(root: Path) -> tuple[dict[str, Any], Identity | None]:
    try:
        identity = origin_identity(root, platform_url())
    except OsmosisError as error:
        return {
            "identity": None,
            "remote_url": error.details.get("remote_url"),
            "warning": error.message,
        }, None
    return {"identity": identity.identity, "remote_url": identity.remote_url}, identity


def _linked_workspace(identity: Identity | None) -> dict[str, Any] | None:
    """The workspace on the platform; None whenever it cannot be told: doctor also helps offline and logged out."""
    if identity is None:
        return None
    try:
        url = platform_url()
        token = current_token(url, warn)
        if token is None:
            return None
        from osmosis_ai.platform.api.client import PlatformClient
        from osmosis_ai.platform.auth.account import verify

        with PlatformClient(url, token, git_identity=identity.identity) as client:
            return verify(client).workspace
    except OsmosisError:
        return None


def _report(resource: dict[str, Any]) -> list[str]:
    lines = [f"Workspace directory: {resource['workspace_directory']}"]
    if resource["git"].get("warning"):
        lines.append(f"Warning: {resource['git']['warning']}")
    if resource["workspace"] is not None:
        lines.append(f"Linked workspace: {resource['workspace']['name']}")
    if resource["missing"]:
        lines += [
            "Missing:",
            *(f"  {path}" for path in resource["missing"]),
            "Run 'osmosis doctor --fix' to create them.",
        ]
    elif resource["fixed"]:
        lines.append("Created what was missing.")
    return lines

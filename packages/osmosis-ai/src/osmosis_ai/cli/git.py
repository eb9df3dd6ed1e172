"""Reading a Git worktree."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from osmosis_ai.cli.errors import CLIError

_TIMEOUT_S = 20


def run_git(folder: Path, *arguments: str, timeout_s: float = _TIMEOUT_S) -> str | None:
    """Standard output of ``git`` without the trailing newline; None when it fails."""
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0"}
    try:
        answer = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",  # folders may have any name
            timeout=timeout_s,
            env=environment,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.rstrip("\n") if answer.returncode == 0 else None


def worktree_root(folder: Path) -> Path:
    """The top of the worktree.

    Raises:
        CLIError: not inside one, or there is no git (``WORKSPACE_REQUIRED``).
    """
    top = run_git(folder, "rev-parse", "--show-toplevel")
    if not top:
        without_git = "" if shutil.which("git") else " The program git was not found."
        raise CLIError(
            f"{folder} is not inside an Osmosis workspace directory.{without_git} Clone your workspace repository, change into it, and "
            "try again.",
            code="WORKSPACE_REQUIRED",
        )
    return Path(top)


@dataclass(frozen=True, slots=True)
class TreeState:
    """Where the local tree stands relative to its remote. ``unpushed`` is None without an upstream."""

    branch: str | None
    head: str | None
    dirty: bool
    unpushed: int | None


def tree_state(root: Path) -> TreeState:
    """Branch, commit, uncommitted changes and unpushed commits."""
    ahead = run_git(root, "rev-list", "--count", "@{upstream}..HEAD")
    return TreeState(
        branch=run_git(root, "symbolic-ref", "--short", "-q", "HEAD"),
        head=run_git(root, "rev-parse", "-q", "--verify", "HEAD"),
        dirty=bool(run_git(root, "status", "--porcelain")),
        unpushed=int(ahead) if ahead is not None and ahead.isdigit() else None,
    )


def has_commit(root: Path, sha: str) -> bool:
    """Whether the commit exists locally."""
    return run_git(root, "cat-file", "-e", f"{sha}^{{commit}}") is not None

"""Whether a repository that the platform does not know has another name on GitHub by now."""

import re
import shutil
import subprocess
from pathlib import Path

from osmosis_ai.cli.git import run_git, worktree_root
from osmosis_ai.cli.identity import origin_identity
from osmosis_ai.errors import OsmosisError
from osmosis_ai.platform.errors import PlatformError
from osmosis_ai.platform.urls import platform_url

_CODES = {"GIT_REPOSITORY_NOT_CONNECTED", "GIT_SCOPE_HEADER_ACCESS_DENIED"}
_TIMEOUT_S = 10
_FULL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*/[A-Za-z0-9._-]+")


def rename_hint(error: PlatformError) -> str | None:
    """The command that follows a renamed repository, when the error may come from that and the GitHub CLI can tell."""
    if error.details.get("platform_code") not in _CODES or shutil.which("gh") is None:
        return None
    try:
        root = worktree_root(Path.cwd())
        identity = origin_identity(root, platform_url()).identity
    except OsmosisError:
        return None
    address = run_git(root, "remote", "get-url", "origin") or ""
    now = _name_now(identity)
    if "github.com" not in address or now is None or now.lower() == identity:
        return None
    renamed = re.sub(re.escape(identity), now, address, flags=re.IGNORECASE)
    return (
        f"On GitHub this repository is called {now} now. Follow it with: git remote set-url origin {renamed}"
    )


def _name_now(repository: str) -> str | None:
    command = ["gh", "api", f"repos/{repository}", "--jq", ".full_name"]
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, stdin=subprocess.DEVNULL, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    name = answer.stdout.strip()
    return name if answer.returncode == 0 and _FULL_NAME.fullmatch(name) else None

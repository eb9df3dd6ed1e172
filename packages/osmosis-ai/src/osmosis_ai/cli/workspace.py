"""The workspace directory that a command runs in, and the connection to its platform."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from osmosis_ai.cli.errors import CLIError
from osmosis_ai.cli.git import worktree_root
from osmosis_ai.cli.identity import Identity, origin_identity
from osmosis_ai.cli.output.messages import warn
from osmosis_ai.platform.auth.current import required_token
from osmosis_ai.platform.urls import platform_url

if TYPE_CHECKING:
    from osmosis_ai.platform.api.client import PlatformClient

CONTRACT_FOLDERS = ("rollouts", "configs/training", "configs/eval", "data")


@dataclass(frozen=True, slots=True)
class Workspace:
    """A checked workspace directory with its identity and a client that is logged in."""

    root: Path
    identity: Identity
    client: "PlatformClient"

    @property
    def context(self) -> dict[str, Any]:
        """The keys ``git`` and ``workspace_directory`` that most results carry."""
        return git_context(self.identity, self.root)


def git_context(identity: Identity, root: Path) -> dict[str, Any]:
    """``git`` and ``workspace_directory`` of a result."""
    return {
        "git": {"identity": identity.identity, "remote_url": identity.remote_url},
        "workspace_directory": str(root),
    }


def require_folders(root: Path) -> None:
    """Check the folders that every workspace has.

    Raises:
        CLIError: some are missing.
    """
    missing = [folder for folder in CONTRACT_FOLDERS if not (root / folder).is_dir()]
    if missing:
        listing = "\n".join(f"  {folder}/" for folder in missing)
        raise CLIError(
            f"{root} is missing required Osmosis scaffold paths:\n{listing}\nRun 'osmosis doctor --fix' to create them.",
            details={"missing": [f"{folder}/" for folder in missing]},
        )


def open_workspace() -> Workspace:
    """The workspace of the current directory: worktree, folders, ``origin``, login - checked in this order.

    Raises:
        CLIError, AuthError: the first of these that is missing.
    """
    root = worktree_root(Path.cwd())
    require_folders(root)
    url = platform_url()
    identity = origin_identity(root, url)
    token = required_token(url, warn)
    # Imported last: a checkout with a problem needs no HTTP client to say so.
    from osmosis_ai.platform.api.client import PlatformClient

    return Workspace(
        root, identity, PlatformClient(url, token, git_identity=identity.identity, on_signal=warn)
    )

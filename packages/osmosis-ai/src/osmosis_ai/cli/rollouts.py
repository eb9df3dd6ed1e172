"""Starting rollouts and listing those that the platform knows."""

from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Any

from osmosis_ai.cli.git import run_git, worktree_root
from osmosis_ai.cli.lists import Listing
from osmosis_ai.cli.output import formats
from osmosis_ai.cli.output.results import Column, ListResult, OperationResult
from osmosis_ai.cli.workspace import require_folders

_FIELDS = ("id", "name", "is_active", "repo_full_name", "last_synced_commit_sha", "created_at")


def new_rollout(name: str, *, force: bool) -> OperationResult:
    """Write the scaffold of a rollout into the current workspace directory; works offline."""
    root = worktree_root(Path.cwd())
    require_folders(root)
    from osmosis_ai.templates.scaffold import init_rollout

    made = init_rollout(name, root, force=force)
    eval_config, training_config = (
        str(path.relative_to(root)) for path in (made.eval_config, made.training_config)
    )
    return OperationResult(
        "rollout.init",
        resource={
            "name": name,
            "workspace_directory": str(root),
            "rollout_dir": str(made.folder),
            "configs": {"eval": str(made.eval_config), "training": str(made.training_config)},
            "files": made.files,
        },
        message=f"Rollout '{name}' created.",
        next_text=[
            *(f"  {path}" for path in made.files),
            "Next:",
            f"  edit rollouts/{name}/main.py, {eval_config} and {training_config}",
            f"  git add . && git commit -m 'Add {name}' && git push   # the platform runs pushed code",
            "  osmosis rollout list   # confirm that Git Sync found it",
            f"  osmosis eval submit {eval_config}",
            f"  osmosis train submit {training_config}",
            "The platform builds the environment from the rollout's pyproject.toml. To check the rollout here as well, install it beside "
            "this program, whose SDK it then uses:",
            f"  pip install -e rollouts/{name}",
        ],
    )


def list_rollouts(limit: int, everything: bool, branch: str | None) -> ListResult:
    """The rollouts of a branch as the platform synced them."""
    found = _ROLLOUTS.list(limit, everything, {"branch": branch})
    return found if branch is None or found.items else replace(found, when_empty=_nothing_on(branch))


def _nothing_on(branch: str) -> str:
    """Why a branch has no rollouts, as far as the local clone knows."""
    there = run_git(Path.cwd(), "rev-parse", "-q", "--verify", f"refs/remotes/origin/{branch}")
    if there:
        return (
            f"There is no rollout at {there[:8]}, where the branch '{branch}' of origin was last seen. Start one with: "
            "osmosis rollout init <name>, then commit and push it."
        )
    return f"The platform has no rollouts of the branch '{branch}'. Push it with: git push -u origin {quote(branch)}"


def _serialize(rollout: dict[str, Any]) -> dict[str, Any]:
    shown = {key: rollout.get(key) for key in _FIELDS}
    return shown | {"is_active": rollout.get("is_active", True)}


_ROLLOUTS = Listing(
    "/rollouts",
    "rollouts",
    "Rollouts",
    _serialize,
    [
        Column("Name", lambda item: formats.text(item["name"])),
        Column("Active", lambda item: "yes" if item["is_active"] else "no"),
        Column("Commit", lambda item: formats.text((item["last_synced_commit_sha"] or "")[:8])),
        Column("Created", lambda item: formats.day(item["created_at"])),
    ],
    when_empty="No rollouts synced yet. Start one with: osmosis rollout init <name>, then commit and push it.",
    next_text=["Evaluate one: osmosis eval submit configs/eval/<name>.toml"],
)

"""Starter templates."""

from pathlib import Path

from osmosis_ai.cli.git import worktree_root
from osmosis_ai.cli.output.results import Column, ListResult, OperationResult
from osmosis_ai.templates.starters import STARTERS, apply_starter


def list_starters() -> ListResult:
    """The names of the starters; works offline and anywhere."""
    items = [{"name": name} for name in sorted(STARTERS)]
    return ListResult(
        items,
        [Column("Name", lambda item: item["name"])],
        len(items),
        title="Templates",
        next_text=["Copy one into this workspace: osmosis template apply <name>"],
    )


def apply_template(name: str, *, force: bool) -> OperationResult:
    """Copy a starter into the current worktree."""
    root = worktree_root(Path.cwd())
    applied = apply_starter(name, root, force=force)
    return OperationResult(
        "template.apply",
        resource={
            "name": name,
            "destinations": [str(path) for path in applied.destinations],
            "files": applied.files,
        },
        message=f"Template '{name}' applied.",
        next_text=[
            *(f"  {path}" for path in applied.files),
            "Next:",
            f"  git add . && git commit -m 'Add {name}' && git push   # the platform runs pushed code",
            "  osmosis rollout list   # confirm that Git Sync found it",
            f"  osmosis eval submit configs/eval/{name}.toml",
            f"  osmosis train submit configs/training/{name}.toml",
            "The platform builds the environment from the rollout's pyproject.toml. To check the rollout here as well, install it beside "
            "this program, whose SDK it then uses:",
            f"  pip install -e rollouts/{name}",
        ],
    )

"""The scaffold of a new rollout."""

import re
from dataclasses import dataclass
from pathlib import Path

from osmosis_ai.templates.errors import TemplateError
from osmosis_ai.templates.writing import check_inside, check_replaceable, write_files

ROLLOUT_NAME = re.compile(r"[a-z][a-z0-9-]*")
RESERVED_NAMES = frozenset({"default"})
_TOKEN = "<your-rollout>"
_FOLDER = Path(__file__).parent / "scaffold"


@dataclass(frozen=True, slots=True)
class NewRollout:
    """What ``init_rollout`` wrote; paths in ``files`` are relative to the workspace."""

    name: str
    folder: Path
    eval_config: Path
    training_config: Path
    files: list[str]


def scaffold_files(name: str) -> dict[str, str]:
    """Packaged file name by target path."""
    return {
        f"rollouts/{name}/main.py": "main.py.txt",
        f"rollouts/{name}/pyproject.toml": "pyproject.toml.txt",
        f"rollouts/{name}/README.md": "README.md.txt",
        f"configs/eval/{name}.toml": "eval.toml.txt",
        f"configs/training/{name}.toml": "training.toml.txt",
    }


def init_rollout(name: str, workspace_dir: Path, *, force: bool = False) -> NewRollout:
    """Write the scaffold of a rollout into a workspace.

    Raises:
        TemplateError: bad name or a target outside the workspace (``VALIDATION``); something is in the way
            (``CONFLICT``); the package lacks a file (``NOT_FOUND``). Nothing is changed then.
    """
    if not ROLLOUT_NAME.fullmatch(name) or name in RESERVED_NAMES:
        reason = (
            "is reserved"
            if name in RESERVED_NAMES
            else "must be lowercase letters, digits and hyphens, starting with a letter"
        )
        raise TemplateError(f"Rollout name {name!r} {reason}.", details={"name": name})
    contents = {target: _packaged(packaged, name) for target, packaged in scaffold_files(name).items()}
    owned = f"rollouts/{name}"
    configs = [path for path in contents if path.startswith("configs/")]
    check_inside(workspace_dir, [owned, *contents])
    taken = [
        path
        for path in (f"{owned}/", *configs)
        if (workspace_dir / path).exists() or (workspace_dir / path).is_symlink()
    ]
    if taken and not force:
        listing = "\n".join(f"  {path}" for path in taken)
        raise TemplateError(
            f"Refusing to overwrite existing paths:\n{listing}\nUse --force to replace them.",
            code="CONFLICT",
            details={"paths": taken},
        )
    check_replaceable(workspace_dir, owned, configs)
    write_files(workspace_dir, owned, contents)
    return NewRollout(
        name, workspace_dir / owned, workspace_dir / configs[0], workspace_dir / configs[1], list(contents)
    )


def _packaged(file_name: str, name: str) -> bytes:
    path = _FOLDER / file_name
    if not path.is_file():
        raise TemplateError(
            f"The installed package lacks {path}; install osmosis-ai again.", code="NOT_FOUND"
        )
    return path.read_text(encoding="utf-8").replace(_TOKEN, name).encode()

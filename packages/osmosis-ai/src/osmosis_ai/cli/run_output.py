"""Where the output of a run is kept below ``.osmosis/``."""

import re
from pathlib import Path

from osmosis_ai.cli.errors import CLIError

_UNSAFE = re.compile(r"[^a-zA-Z0-9_-]")
_RESERVED = {"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(1, 10))}
_LONGEST = 255


def safe_name(name: str) -> str:
    """The name with every character that a file system may refuse replaced by ``_``."""
    return _UNSAFE.sub("_", name).strip("_")


def run_folder_name(name: str | None, run_id: str) -> str:
    """A folder name that no other run gets: the run's name when it is safe as it is, else with its id behind."""
    if not name:
        return safe_name(run_id)
    safe = safe_name(name)
    if safe == name and safe == safe.lower() and safe.lower() not in _RESERVED:
        return safe[:_LONGEST]
    suffix = f"--{safe_name(run_id)}"
    return safe[: _LONGEST - len(suffix)] + suffix


def run_root(workspace_dir: Path, kind: str, name: str | None, run_id: str, output: str | None) -> Path:
    """The folder of a run: ``-o``, else ``.osmosis/<kind>/<folder>``.

    Raises:
        CLIError: a file is in its place.
    """
    if output is None:
        root = workspace_dir / ".osmosis" / kind / run_folder_name(name, run_id)
    else:
        root = Path(output).expanduser().resolve()
    if root.exists() and not root.is_dir():
        raise CLIError(f"The run output root is a file: {root}", details={"path": str(root)})
    return root


def metrics_file(workspace_dir: Path, name: str | None, run_id: str, output: str | None) -> Path:
    """The metrics file of a training run. ``-o`` may be a folder; another extension than ``.json`` is replaced."""
    default = f"{safe_name(name or run_id)}_{run_id[:8]}.json"
    if output is None:
        return workspace_dir / ".osmosis" / "metrics" / default
    path = Path(output).expanduser()
    if output.endswith("/") or path.is_dir():
        return path.resolve() / default
    return path.resolve().with_suffix(".json")

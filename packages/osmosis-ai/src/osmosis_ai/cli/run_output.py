"""Where the output of a run is kept below ``.osmosis/``."""

import json
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
    """The folder of a run: ``-o``, else ``.osmosis/<kind>/<folder>``; beside an evaluation of this machine that has the folder.

    Raises:
        CLIError: a file is in its place, or the files of another run (``CONFLICT``).
    """
    if output is None:
        root = workspace_dir / ".osmosis" / kind / run_folder_name(name, run_id)
        if _is_local_run(root):
            root = root.with_name(f"{root.name}--{safe_name(run_id)}")
    else:
        root = Path(output).expanduser().resolve()
    if root.exists() and not root.is_dir():
        raise CLIError(f"The run output root is a file: {root}", details={"path": str(root)})
    _require_own_folder(root, run_id)
    return root


def _require_own_folder(root: Path, run_id: str) -> None:
    """Files of two runs in one folder would be taken for one run."""
    other = "an evaluation that ran on this machine" if _is_local_run(root) else _other_run(root, run_id)
    if other is not None:
        raise CLIError(
            f"{root} holds {other}. Choose another folder with -o.",
            code="CONFLICT",
            details={"path": str(root)},
        )


def _is_local_run(root: Path) -> bool:
    """Whether `osmosis eval run` made the folder."""
    return (root / "events.jsonl").exists() and (root / "manifest.json").exists()


def _other_run(root: Path, run_id: str) -> str | None:
    """The run that the metrics in a folder are of, when it is another one."""
    try:
        run = json.loads((root / "metrics.json").read_bytes())["eval_run"]
        found, name = str(run["id"]), run.get("name")
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
    return None if found == run_id else f"the output of run {name or found}"


def metrics_file(workspace_dir: Path, name: str | None, run_id: str, output: str | None) -> Path:
    """The metrics file of a training run. ``-o`` may be a folder; another extension than ``.json`` is replaced."""
    default = f"{safe_name(name or run_id)}_{run_id[:8]}.json"
    if output is None:
        return workspace_dir / ".osmosis" / "metrics" / default
    path = Path(output).expanduser()
    if output.endswith("/") or path.is_dir():
        return path.resolve() / default
    return path.resolve().with_suffix(".json")

"""Trying the rollout's entrypoint before a run is submitted, in a process of its own."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from osmosis_ai.cli.errors import CLIError
from osmosis_ai.cli.submit.dependencies import unmet_dependencies
from osmosis_ai.cli.submit.passed import passed_before, remember

_TIMEOUT_S = 120


def check_rollout(workspace_dir: Path, rollout: str, entrypoint: str) -> list[str]:
    """Warnings about the rollout; a rollout that cannot work is an error.

    The code is imported only where its dependencies are installed: the platform has its own environment for it.

    Raises:
        CLIError: the entrypoint does not import, or has not exactly one workflow and one grader.
    """
    folder = workspace_dir / "rollouts" / rollout
    unmet = unmet_dependencies(folder / "pyproject.toml")
    if unmet:
        return [
            f"The rollout was not checked: these dependencies are not installed here: {', '.join(unmet)}. "
            "The platform builds its own environment and tries it there."
        ]
    seen = passed_before(folder, entrypoint)
    if seen.exists():
        return []
    found = _discover(folder, entrypoint)
    problems = found.get("problems", [])
    if problems and all(problem["code"] == "MISSING_DEPENDENCY" for problem in problems):
        return [f"The rollout was not checked: {problem['message']}" for problem in problems]
    if problems:
        lines = "\n".join(f"  - [{problem['code']}] {problem['message']}" for problem in problems)
        raise CLIError(
            f"Rollout preflight failed for `rollouts/{rollout}/{entrypoint}`:\n{lines}",
            details={"rollout": rollout, "entrypoint": entrypoint, "problems": problems},
        )
    warnings = [str(warning["message"]) for warning in found.get("warnings", [])]
    if not warnings:
        remember(seen)
    return warnings


def _discover(folder: Path, entrypoint: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "osmosis_ai.rollout.discovery", str(folder), entrypoint]
    try:
        # Its output is read, not shown: what user code prints must not mix with the command's own output.
        answer = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
            cwd=folder,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise CLIError(
            f"Rollout preflight failed for `rollouts/{folder.name}/{entrypoint}`: importing it took more than {_TIMEOUT_S} s. "
            "Start servers in main(), not at import."
        ) from error
    try:
        document = json.loads(answer.stdout)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        tail = answer.stderr.strip()[-1000:]
        raise CLIError(
            f"Rollout preflight failed for `rollouts/{folder.name}/{entrypoint}`: the check ended with status "
            f"{answer.returncode}.\n{tail}"
        )
    return document

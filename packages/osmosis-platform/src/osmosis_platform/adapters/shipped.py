"""Asks the trainer's interpreter which base models it ships. Its environment is another one, so the answer is a process's."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path

from osmosis_platform.context import Platform
from osmosis_platform.errors import Unavailable
from osmosis_platform.settings import Settings

log = logging.getLogger("osmosis_platform.adapters")

_QUESTION = (
    "import json; from osmosis_trainer.tiny import model_names, model_path; "
    "print(json.dumps({name: str(model_path(name)) for name in model_names()}))"
)


def trainer_python(settings: Settings) -> Path:
    """The interpreter with osmosis_trainer: the configured one, or that of `.venv-trainer` beside this environment."""
    return settings.trainer_python or Path(sys.prefix).parent / ".venv-trainer" / "bin" / "python"


def shipped_models(platform: Platform) -> dict[str, Path]:
    """Names and folders of the shipped base models; raises Unavailable when the trainer cannot be asked.

    The answer is kept in the data folder for as long as the folders in it exist, so that a start does not wait for a process.
    """
    cache = platform.settings.data_dir / "shipped-models.json"
    python = trainer_python(platform.settings)
    known = _read(cache, python)
    if known is not None:
        return known
    try:
        answer = subprocess.run(
            [str(python), "-c", _QUESTION], capture_output=True, text=True, timeout=60, check=True
        )
        models: dict[str, str] = json.loads(answer.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        reason = getattr(error, "stderr", "") or str(error)
        raise Unavailable(
            f"The trainer's interpreter {python} did not answer: {reason.strip()[-500:]}. Set OSMOSIS_TRAINER_PYTHON."
        ) from error
    found = {name: Path(folder) for name, folder in models.items() if Path(folder).is_dir()}
    cache.write_text(json.dumps({"python": str(python), "models": {k: str(v) for k, v in found.items()}}))
    return found


def _read(cache: Path, python: Path) -> dict[str, Path] | None:
    try:
        content = json.loads(cache.read_text())
    except (OSError, ValueError):
        return None
    models = {name: Path(folder) for name, folder in content.get("models", {}).items()}
    usable = models and content.get("python") == str(python) and all(map(Path.is_dir, models.values()))
    return models if usable and python.exists() else None

"""A workspace directory with one rollout, and a way to write configs into it."""

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def workspace_dir(tmp_path: Path) -> Path:
    for folder in ("rollouts/calc", "configs/eval", "configs/training", "data"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "rollouts/calc/main.py").write_text("")
    return tmp_path


@pytest.fixture
def write_config(workspace_dir: Path) -> Callable[..., str]:
    """Write a config; returns its workspace-relative path. `body` replaces everything, `more` follows [experiment]."""

    def write(kind: str, more: str = "", *, body: str | None = None, experiment: str = "") -> str:
        path = f"configs/{kind}/calc.toml"
        text = body
        if text is None:
            text = (
                '[experiment]\nrollout = "calc"\nentrypoint = "main.py"\nmodel_path = "m"\ndataset = "d"\n'
                f"{experiment}\n{more}\n"
            )
        (workspace_dir / path).write_text(text)
        return path

    return write

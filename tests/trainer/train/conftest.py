"""A run with a scripted engine and agent, in this process or in one of its own."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SCRIPT = Path(__file__).with_name("scripted_worker.py")
REAL_SCRIPT = Path(__file__).with_name("real_worker.py")


@pytest.fixture(scope="session")
def scripted() -> ModuleType:
    """The module of the scripted worker."""
    spec = importlib.util.spec_from_file_location("scripted_worker", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["scripted_worker"] = module
    spec.loader.exec_module(module)
    return module


@contextmanager
def nursery(script: Path) -> Iterator[Callable[[list[Any]], int]]:
    """A process that forks a child for each job it is given and answers with the child's exit status."""
    command = [sys.executable, str(script)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def run(job: list[Any]) -> int:
            print(json.dumps(job), file=process.stdin, flush=True)
            return int(process.stdout.readline())

        yield run
        process.stdin.close()


@pytest.fixture(scope="module")
def worker() -> Iterator[Callable[..., int]]:
    """Runs `worker(folder, config, kill)` in a process of its own and returns its exit status."""
    with nursery(SCRIPT) as run_job:

        def run(folder: Path, config: dict[str, Any], kill: str = "") -> int:
            folder.mkdir(exist_ok=True)
            return run_job([str(folder / "work"), str(folder), config, kill])

        yield run


@pytest.fixture(scope="module")
def real_worker(model_folders: Path) -> Iterator[Callable[..., int]]:
    """The same with the real engine over a small random model; `kill` is the number of an event, 0 for none."""
    with nursery(REAL_SCRIPT) as run_job:

        def run(folder: Path, config: dict[str, Any], kill: int = 0) -> int:
            folder.mkdir(exist_ok=True)
            return run_job([str(model_folders / "base"), str(folder / "work"), str(folder), config, kill])

        yield run


@pytest.fixture
def config() -> dict[str, Any]:
    """A small run: four steps of three groups with four samples."""
    return {
        "training": {"rollout_batch_size": 3, "n_samples_per_prompt": 4, "total_epochs": 1, "lr": 1e-3},
        "checkpoints": {"eval_interval": 2, "checkpoint_save_freq": 2},
        "advanced": {"seed": 11, "max_steps": 4, "validation_rows": 4, "warmup_ratio": 0.5},
    }


@pytest.fixture
def make_run(scripted: ModuleType, tmp_path: Path, config: dict[str, Any]) -> Callable[..., Any]:
    """Parts of a run in `tmp_path/<name>`; `advanced=`, `training=`, `checkpoints=` change settings."""

    def make(name: str = "run", rows: int = 23, **changes: dict[str, Any]) -> Any:
        changed = {section: config[section] | changes.get(section, {}) for section in config}
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        return scripted.make_parts(folder / "work", folder, changed, rows=rows)

    return make

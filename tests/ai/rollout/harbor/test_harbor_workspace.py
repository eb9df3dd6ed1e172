"""What a killed backend leaves is cleared away by the next one."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from osmosis_ai.rollout.backend.harbor.workspace import Workspace

KILLED = """
import os, pathlib, signal, sys
from osmosis_ai.rollout.backend.harbor.workspace import Workspace

made = Workspace(pathlib.Path(sys.argv[1]) if sys.argv[1] else None)
(made.rollouts_dir / "r1").mkdir(parents=True)
for name in ("trial-r1", "trial-kept"):
    (made.trials_dir / name).mkdir(parents=True)
print(made.root, made.trials_dir, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    return folder


@pytest.mark.parametrize("own", [False, True])
def test_running_rollouts_of_a_killed_backend_are_removed(tmp_path: Path, own: bool) -> None:
    place = str(tmp_path / "trials") if own else ""
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, place], capture_output=True, text=True, timeout=60, check=False
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    root, trials = map(Path, killed.stdout.split())
    assert (root / "rollouts" / "r1").exists()
    Workspace().close()
    assert [path.name for path in trials.iterdir()] == ["trial-kept"]
    assert not (root / "rollouts").exists()
    assert root.exists() is not own


def test_a_living_backend_keeps_its_folder(temporary: Path) -> None:
    first = Workspace()
    (first.rollouts_dir / "r1").mkdir(parents=True)
    second = Workspace()
    assert (first.rollouts_dir / "r1").exists()
    for workspace in (first, second, second):
        workspace.close()
    assert list(temporary.iterdir()) == []

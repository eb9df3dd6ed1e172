"""The private folder of a backend, and what a killed one left."""

import atexit
import contextlib
import fcntl
import os
import tempfile
from pathlib import Path

from osmosis_ai.rollout.backend.harbor.trial import trial_name
from osmosis_ai.rollout.utils.remove_tree import remove_tree

_PREFIX = "osmosis-harbor-"
_LOCK = "in-use"
_TRIALS_DIR = "trials-dir"


class Workspace:
    """A folder for temporary files with the copies of tasks of running rollouts, and their trials unless they have a place.

    Both hold the keys of rollouts while they run. A lock says that the process lives: what a killed one left of rollouts that
    were running is removed when the next backend is made. Trials that were kept for inspection stay.
    """

    def __init__(self, trials_dir: Path | None = None) -> None:
        base = Path(tempfile.gettempdir())
        _clear_abandoned(base)
        # It gets its name once it is locked, so that nobody takes it for abandoned.
        made = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}", dir=base))
        self._lock: int | None = os.open(made / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.root = made.with_name(made.name.removeprefix("."))
        self.rollouts_dir = self.root / "rollouts"
        self.trials_dir = self.root / "trials" if trials_dir is None else trials_dir
        (made / _TRIALS_DIR).write_text(str(self.trials_dir.absolute()), encoding="utf-8")
        made.rename(self.root)
        atexit.register(self.close)

    def close(self) -> None:
        """Remove everything but the trials that were kept."""
        remove_tree(self.rollouts_dir)
        _remove_if_unused(self.root)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _clear_abandoned(base: Path) -> None:
    for lock_file in base.glob(f"{_PREFIX}*/{_LOCK}"):
        root = lock_file.parent
        try:
            if root.is_symlink() or root.stat().st_uid != os.geteuid():
                continue
            lock = os.open(lock_file, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            continue  # removed meanwhile
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _clear(root)
        except OSError:
            continue  # in use
        finally:
            os.close(lock)


def _clear(root: Path) -> None:
    rollouts = root / "rollouts"
    trials = Path((root / _TRIALS_DIR).read_text(encoding="utf-8"))
    for running in rollouts.iterdir() if rollouts.is_dir() else ():
        remove_tree(trials / trial_name(running.name))
    remove_tree(rollouts)
    _remove_if_unused(root)


def _remove_if_unused(root: Path) -> None:
    for name in (_LOCK, _TRIALS_DIR):
        (root / name).unlink(missing_ok=True)
    for folder in (root / "trials", root):
        with contextlib.suppress(OSError):  # not empty: it has trials that were kept
            folder.rmdir()

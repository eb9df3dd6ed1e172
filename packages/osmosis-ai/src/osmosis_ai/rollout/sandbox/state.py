"""The private files of sandboxes on the host."""

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

from osmosis_ai.rollout.utils.remove_tree import remove_tree

_PREFIX = "osmosis-sandbox-"
_LOCK = "in-use"


class State:
    """The folder of one sandbox. ``root`` becomes its ``/``.

    A lock says that its process lives: what a killed process left is removed when the next sandbox is made there. It may hold
    the keys of rollouts.
    """

    def __init__(self, folder: Path, lock: int) -> None:
        self.folder = folder
        self.root = folder / "root"
        self._lock = lock

    @classmethod
    def create(cls, place: str | None = None) -> "State":
        """Make a folder in ``place``, by default the folder for temporary files.

        Raises:
            OSError: when that is impossible.
        """
        base = Path(place or tempfile.gettempdir())
        _remove_abandoned(base)
        # It gets its name once it is locked, so that nobody takes it for abandoned.
        made = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}", dir=base))
        lock = os.open(made / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        (made / "root").mkdir()
        return cls(made.rename(made.with_name(made.name.removeprefix("."))), lock)

    def remove(self) -> None:
        """Delete everything; no process of the sandbox may be running."""
        _remove(self.folder)
        os.close(self._lock)

    def keep(self) -> None:
        """Let the files stay, also when this process ends."""
        (self.folder / _LOCK).unlink(missing_ok=True)
        os.close(self._lock)


def _remove_abandoned(base: Path) -> None:
    for lock_file in base.glob(f"{_PREFIX}*/{_LOCK}"):
        try:
            lock = os.open(lock_file, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            continue  # removed meanwhile, or another user's
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(lock_file.parent)
        except OSError:
            continue  # in use
        finally:
            os.close(lock)


def _remove(folder: Path) -> None:
    try:
        shutil.rmtree(folder)
    except RecursionError:
        remove_tree(folder)
    except PermissionError:  # folders that were closed from inside
        for parent, names, _ in os.walk(folder):
            for name in names:
                path = Path(parent) / name
                if not path.is_symlink():
                    path.chmod(0o700)
        shutil.rmtree(folder)

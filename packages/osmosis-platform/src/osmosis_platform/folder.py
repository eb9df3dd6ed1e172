"""The data folder: private to its owner, and used by one process at a time."""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path

from osmosis_platform.errors import CannotStart

_LOCK = "lock"
_BLOBS = "blobs"


def require_platform(folder: Path) -> None:
    """Raise CannotStart unless a platform has used this folder: a mistyped name must not become a new, empty platform."""
    if not (folder / _BLOBS).is_dir():
        raise CannotStart(
            f"There is no platform in {folder}. Correct --data, or start one there first: osmosis-platform serve --data {folder}",
            code="NO_PLATFORM",
        )


def prepare_folder(folder: Path) -> None:
    """Create the folder with mode 0700; raises CannotStart when it cannot be made, is no folder or belongs to something else."""
    try:
        if folder.is_dir() and not _is_ours(folder):
            raise CannotStart(
                f"The folder {folder} holds other files and no platform. Choose a new or an empty one with --data.",
                code="FOLDER_NOT_EMPTY",
            )
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.chmod(0o700)
    except OSError as error:
        raise CannotStart(
            f"Cannot use the data folder {folder}: {error.strerror or error}. Choose another with --data."
        ) from error


def _is_ours(folder: Path) -> bool:
    names = {entry.name for entry in folder.iterdir()} - {"lost+found"}
    return not names or bool(names & {_LOCK, _BLOBS})


@dataclass(slots=True)
class FolderLock:
    """An exclusive lock that the kernel drops when its process ends, however it ends."""

    path: Path
    descriptor: int

    @classmethod
    def acquire(cls, folder: Path) -> FolderLock:
        """Take the folder, or raise CannotStart that names the process that has it."""
        path = folder / _LOCK
        # Not inherited by child processes: a child that outlives us must not keep the folder locked.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(descriptor)
            raise CannotStart(
                f"The data folder {folder} is in use by another platform process (pid {holder}). "
                "Stop that one first, or choose another folder with --data.",
                code="FOLDER_IN_USE",
            ) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode("ascii"), 0)
        return cls(path, descriptor)

    @classmethod
    def probe(cls, folder: Path) -> None:
        """Raise CannotStart when another process has the folder; creates nothing."""
        if (folder / _LOCK).exists():
            cls.acquire(folder).release()

    def release(self) -> None:
        """Let go; a second call does nothing."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def identity_file(folder: Path) -> Path:
    """Says which process serves the folder, and at which address."""
    return folder / "platform.json"

"""Becomes an ordinary user, then a command: `python -I -S unprivileged.py USER FOLDERS... [--own FOLDERS...] -- CMD...`

Run by root; CMD is an absolute path. The command sees the n-th of the given folders at `STAGE/n`, also where its user may not walk the way to it, and owns
those after `--own` with all that is in them. Runs before the command, so it imports next to nothing.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

STAGE = "/tmp"
PARENT_GONE = 70
CANNOT = 126
_PR_SET_PDEATHSIG = 1
_CLONE_NEWNS = 0x00020000
_MS_BIND, _MS_REC, _MS_SLAVE = 0x1000, 0x4000, 0x80000


def main(arguments: list[str]) -> None:
    """Set the stage, give root up, and become the command."""
    split = arguments.index("--")
    command = arguments[split + 1 :]
    user, folders = int(arguments[0]), arguments[1:split]
    owned = folders[folders.index("--own") + 1 :] if "--own" in folders else []
    parent = os.getppid()
    try:
        for folder in owned:
            _give(folder, user)
        _set_stage([folder for folder in folders if folder != "--own"])
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
        # The kernel forgets the death signal when the user changes.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(PARENT_GONE)
        os.execv(command[0], command)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        os.write(2, f"cannot start {command[0]} as user {user}: {where}{error.strerror}\n".encode())
        os._exit(CANNOT)


def _give(folder: str, user: int) -> None:
    for _, names, files, fd in os.fwalk(folder):
        _give_one(".", fd, user)
        for name in [*names, *files]:
            _give_one(name, fd, user)


def _give_one(name: str, fd: int, user: int) -> None:
    found = os.stat(name, dir_fd=fd, follow_symlinks=False)
    # A file with another name elsewhere (uv links packages to its cache) is not this folder's to give away.
    shared = found.st_nlink > 1 and (found.st_mode & 0o170000) == 0o100000
    if found.st_uid != user and not shared:
        os.chown(name, user, user, dir_fd=fd, follow_symlinks=False)


def _set_stage(folders: list[str]) -> None:
    """A private view of the machine in which the stage holds the folders and nothing else."""
    libc = ctypes.CDLL(None, use_errno=True)
    _check(libc.unshare(_CLONE_NEWNS))
    _mount(libc, "none", "/", None, _MS_REC | _MS_SLAVE)
    opened = [os.open(folder, os.O_PATH | os.O_CLOEXEC) for folder in folders]
    _mount(libc, "tmpfs", STAGE, "tmpfs", 0, "mode=755,size=64k")
    for number, fd in enumerate(opened):
        place = f"{STAGE}/{number}"
        os.mkdir(place)
        _mount(libc, f"/proc/self/fd/{fd}", place, None, _MS_BIND | _MS_REC)


def _mount(
    libc: ctypes.CDLL, source: str, target: str, kind: str | None, flags: int, data: str | None = None
) -> None:
    words = [None if word is None else word.encode() for word in (source, target, kind, data)]
    _check(libc.mount(words[0], words[1], words[2], ctypes.c_ulong(flags), words[3]), target)


def _check(answer: int, path: str | None = None) -> None:
    if answer != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)


if __name__ == "__main__":
    main(sys.argv[1:])

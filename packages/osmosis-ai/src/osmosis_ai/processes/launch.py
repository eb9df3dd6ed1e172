"""Starts a command in a session of its own that ends with its parent: `python -I -S launch.py --parent PID [limits] -- CMD...`

Runs before every child, so it imports next to nothing. On Linux the kernel ends the command when the *thread* that started it
ends, so start children from one that lives as long as they may; elsewhere whoever started it ends it.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys

PARENT_GONE = 70
_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Apply the options, then become the command."""
    split = arguments.index("--")
    options = dict(zip(arguments[:split:2], arguments[1:split:2], strict=True))
    command = arguments[split + 1 :]
    if os.getpid() != os.getsid(0):
        os.setsid()
    _die_with_parent(int(options["--parent"]))
    if "--data-bytes" in options:
        _limit(resource.RLIMIT_DATA, int(options["--data-bytes"]))
    if "--processes" in options:
        _limit(resource.RLIMIT_NPROC, int(options["--processes"]))
    if "--file-bytes" in options:
        _limit(resource.RLIMIT_FSIZE, int(options["--file-bytes"]))
    _limit(resource.RLIMIT_CORE, 0)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"cannot start {command[0]}: {error.strerror}\n".encode())
        os._exit(127)


def _die_with_parent(parent: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before the request took effect
        os._exit(PARENT_GONE)


def _limit(kind: int, value: int) -> None:
    _soft, hard = resource.getrlimit(kind)
    allowed = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (allowed, allowed))


def command_line(parent: int, command: list[str], limits: list[str] | None = None) -> list[str]:
    """What to execute for a command that ends with the process `parent`; `limits` are options and their values."""
    return [sys.executable, "-I", "-S", __file__, "--parent", str(parent), *(limits or []), "--", *command]


if __name__ == "__main__":
    main(sys.argv[1:])

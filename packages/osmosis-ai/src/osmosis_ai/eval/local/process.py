"""Starts a command in a session of its own that ends with its parent.

``python -I -S process.py PARENT_PID CMD...``; runs before the command, so it imports next to nothing. On Linux the kernel ends
the command when the thread that started it ends; elsewhere it is ended by whoever started it.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_PARENT_GONE = 70


def main(arguments: list[str]) -> None:
    """Become the command."""
    parent, *command = arguments
    if os.getpid() != os.getsid(0):
        os.setsid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != int(parent):
        os._exit(_PARENT_GONE)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"cannot start {command[0]}: {error.strerror}\n".encode())
        os._exit(127)


if __name__ == "__main__":
    main(sys.argv[1:])

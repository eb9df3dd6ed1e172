"""A worker must not outlive the process that started it."""

import os
import sys
import threading

ORPHANED = 70


def start_lifeline(fd: int | None = None) -> threading.Thread:
    """Exit with status 70 as soon as standard input (or ``fd``) reaches its end: the parent is gone.

    Reads the descriptor itself, not the buffered stream: a thread blocked in a buffered read would hold the stream's
    lock and abort the interpreter at its end.
    """
    descriptor = sys.stdin.fileno() if fd is None else fd
    thread = threading.Thread(target=_watch, args=(descriptor,), name="lifeline", daemon=True)
    thread.start()
    return thread


def _watch(descriptor: int) -> None:
    while os.read(descriptor, 4096):
        pass
    os._exit(ORPHANED)

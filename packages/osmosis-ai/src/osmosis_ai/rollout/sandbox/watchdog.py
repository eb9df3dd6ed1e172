"""Ending sandboxes that use more than their share.

Without control groups, which an ordinary user does not have, the kernel limits no group of processes. So one thread looks at
all sandboxes, about twenty times a second, and ends the ones over their limits. Looking is done from outside: nothing inside
can hide from it.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from osmosis_ai.rollout.sandbox.limits import Limits

_INTERVAL_S = 0.05
# Looking takes at most this share of the time.
_SHARE = 0.1


@dataclass(eq=False)
class Watched:
    """A running sandbox: a descriptor of its ``/proc``, one of its first process, and what to say when it ends."""

    proc_fd: int
    pid_fd: int
    limits: Limits
    on_breach: Callable[[str], None]

    def check(self) -> None:
        """End the sandbox when it is over a limit."""
        tasks = memory_kb = 0
        names = [name for name in os.listdir(self.proc_fd) if name.isdigit()]
        if len(names) <= self.limits.processes:
            for name in names:
                status = self._read(f"{name}/status")
                tasks += _number(status, "Threads")
                memory_kb += _number(status, "RssAnon") + _number(status, "RssShmem")
        if max(len(names), tasks) > self.limits.processes:
            self._end(f"more than {self.limits.processes} processes and threads")
        elif (
            memory_kb > self.limits.memory_mb * 1024 and self._exact_kb(names) > self.limits.memory_mb * 1024
        ):
            self._end(f"more than {self.limits.memory_mb} MiB of memory")

    def _exact_kb(self, names: list[str]) -> int:
        """Memory with pages that several processes share counted once. Takes longer, so it is only asked when it matters."""
        total = 0
        for name in names:
            rollup = self._read(f"{name}/smaps_rollup")
            total += _number(rollup, "Pss_Anon") + _number(rollup, "Pss_Shmem")
        return total

    def _end(self, reason: str) -> None:
        self.on_breach(reason)
        signal.pidfd_send_signal(self.pid_fd, signal.SIGKILL)

    def _read(self, path: str) -> str:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self.proc_fd)
        except OSError:
            return ""  # it is gone
        try:
            return os.read(fd, 16384).decode(errors="replace")
        except OSError:
            return ""
        finally:
            os.close(fd)


class Watchdog:
    """The thread. It runs while there is something to watch."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watched: set[Watched] = set()
        self._thread: threading.Thread | None = None

    def add(self, watched: Watched) -> None:
        """Watch a sandbox; the descriptors must stay open until :meth:`remove` has returned."""
        with self._lock:
            self._watched.add(watched)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="osmosis-sandbox-watchdog", daemon=True
                )
                self._thread.start()

    def remove(self, watched: Watched) -> None:
        """Stop watching."""
        with self._lock:
            self._watched.discard(watched)

    def _run(self) -> None:
        while True:
            started = time.monotonic()
            with self._lock:
                if not self._watched:
                    self._thread = None
                    return
                for watched in self._watched:
                    with contextlib.suppress(OSError):  # it has ended
                        watched.check()
            time.sleep(max(_INTERVAL_S, (time.monotonic() - started) / _SHARE))


WATCHDOG = Watchdog()


def _number(text: str, key: str) -> int:
    before, found, after = text.partition(f"{key}:")
    return int(after.split(maxsplit=1)[0]) if found and (not before or before.endswith("\n")) else 0

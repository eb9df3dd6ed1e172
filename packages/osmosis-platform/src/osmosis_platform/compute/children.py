"""Child processes: started from one long-lived thread, each with a reader of its output and a lifeline on its stdin."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from osmosis_ai.processes.launch import command_line

_LONGEST_LINE = 16 * 1024
_TAIL_LINES = 40


@dataclass(frozen=True, slots=True)
class Limits:
    """Resource limits of a child; None leaves the platform's own. `data_bytes` counts private writable memory."""

    data_bytes: int | None = None
    processes: int | None = None
    file_bytes: int | None = None

    def options(self) -> list[str]:
        """As options of the launcher."""
        found = []
        if self.data_bytes is not None:
            found += ["--data-bytes", str(self.data_bytes)]
        if self.processes is not None:
            found += ["--processes", str(self.processes)]
        if self.file_bytes is not None:
            found += ["--file-bytes", str(self.file_bytes)]
        return found


_Request = tuple[Callable[[], "subprocess.Popen[bytes]"], "Future[subprocess.Popen[bytes]]"]


class Spawner:
    """Starts children from a thread of its own, since they end when the thread that started them does."""

    def __init__(self) -> None:
        self._requests: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="spawner", daemon=True)
        self._thread.start()

    def start(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path,
        on_line: Callable[[str], None],
        limits: Limits | None = None,
        name: str = "child",
    ) -> Child:
        """Start a command; `on_line` gets each line of its stdout and stderr, from another thread. Raises OSError."""
        process = self._popen(
            command, env=env, cwd=cwd, limits=limits, stdin=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        return Child(process, on_line, name)

    def run(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path,
        timeout: float,
        limits: Limits | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a short command to its end and return its output. Raises subprocess.TimeoutExpired after killing it."""
        process = self._popen(
            command, env=env, cwd=cwd, limits=limits, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        with process:
            try:
                out, err = process.communicate(timeout=timeout)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        return subprocess.CompletedProcess(
            list(command), process.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace")
        )

    def _popen(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path,
        limits: Limits | None,
        stdin: int,
        stderr: int,
    ) -> subprocess.Popen[bytes]:
        full = command_line(os.getpid(), list(command), (limits or Limits()).options())

        def spawn() -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                full,
                env=dict(env),
                cwd=cwd,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,
            )

        result: Future[subprocess.Popen[bytes]] = Future()
        self._requests.put((spawn, result))
        return result.result()

    def close(self) -> None:
        """End the thread; children that still run end with it."""
        self._requests.put(None)
        self._thread.join()

    def _serve(self) -> None:
        while (request := self._requests.get()) is not None:
            spawn, result = request
            try:
                result.set_result(spawn())
            except BaseException as error:
                result.set_exception(error)


class Child:
    """A running child. `tail` holds its last lines of output."""

    def __init__(self, process: subprocess.Popen[bytes], on_line: Callable[[str], None], name: str) -> None:
        self.process = process
        self.name = name
        self.tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._on_line = on_line
        assert process.stdout is not None
        self._reader = threading.Thread(
            target=self._read, args=(process.stdout,), name=f"output-{name}", daemon=True
        )
        self._reader.start()

    @property
    def pid(self) -> int:
        """The process id, which is its process group's too."""
        return self.process.pid

    def send_spec(self, spec: Mapping[str, Any]) -> None:
        """Write the spec as one line to stdin, which stays open as the child's lifeline.

        A child that has ended already is no error here: `poll` tells.
        """
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(spec, allow_nan=False).encode() + b"\n")
            self.process.stdin.flush()

    def poll(self) -> int | None:
        """The exit status, or None while it runs. Killed by a signal is the negative number of it."""
        return self.process.poll()

    def wait(self, timeout: float) -> int | None:
        """Wait for the end, at most `timeout` seconds."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None

    def terminate(self) -> None:
        """Ask the process itself to end."""
        if self.process.poll() is None:
            self.process.terminate()

    def kill(self) -> None:
        """End the process and everything in its group, and wait until its output is read."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.finish_reading()

    def finish_reading(self) -> None:
        """After the end: let the reader deliver what is left and close the pipes."""
        self._reader.join(timeout=2.0)  # a grandchild in another group could hold the pipe open
        if self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()

    def _read(self, stream: IO[bytes]) -> None:
        with stream:
            while raw := stream.readline(_LONGEST_LINE):
                line = raw.decode("utf-8", "replace").rstrip("\r\n")
                if line:
                    self.tail.append(line)
                    self._on_line(line)

"""Children end with the platform, whatever happens to it, and within their limits."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from osmosis_platform.compute.children import Limits, Spawner

PARENT = """
import sys, time
from pathlib import Path
from osmosis_platform.compute.children import Spawner
spawner = Spawner()
child = spawner.start(["/bin/sh", "-c", "echo $$; exec sleep 600"], env={}, cwd=Path("/"), on_line=lambda line: print(line, flush=True))
time.sleep(600)
"""


@pytest.fixture
def spawner() -> Iterator[Spawner]:
    spawner = Spawner()
    yield spawner
    spawner.close()


def test_a_child_ends_with_its_killed_parent(alive: Any) -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent.stdout as output:
        child = int(output.readline())
    assert alive(child)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    deadline = time.monotonic() + 10
    while alive(child):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_output_spec_and_status(spawner: Spawner, tmp_path: Path) -> None:
    lines: list[str] = []
    script = (
        "import sys; print('got', sys.stdin.readline().strip()); print('oh', file=sys.stderr); sys.exit(4)"
    )
    child = spawner.start([sys.executable, "-c", script], env={}, cwd=tmp_path, on_line=lines.append)
    child.send_spec({"a": 1})
    assert child.wait(20) == 4
    child.finish_reading()
    assert sorted(lines) == ['got {"a": 1}', "oh"]
    assert sorted(child.tail) == sorted(lines)


def test_killing_a_child_takes_its_group(spawner: Spawner, tmp_path: Path, alive: Any) -> None:
    lines: list[str] = []
    script = "sleep 600 & echo $!; wait"
    child = spawner.start(
        ["/bin/sh", "-c", script], env={"PATH": "/usr/bin:/bin"}, cwd=tmp_path, on_line=lines.append
    )
    deadline = time.monotonic() + 10
    while not lines:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    child.kill()
    while alive(int(lines[0])):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_memory_is_limited(spawner: Spawner, tmp_path: Path) -> None:
    command = [sys.executable, "-c", "x = bytearray(300 * 1024**2); print('had it')"]
    done = spawner.run(command, env={}, cwd=tmp_path, timeout=30, limits=Limits(data_bytes=200 * 1024**2))
    assert "MemoryError" in done.stderr
    done = spawner.run(command, env={}, cwd=tmp_path, timeout=30, limits=Limits(data_bytes=600 * 1024**2))
    assert done.stdout == "had it\n"


def test_a_command_that_is_not_there(spawner: Spawner, tmp_path: Path) -> None:
    done = spawner.run(["/no/such/program"], env={}, cwd=tmp_path, timeout=30)
    assert (done.returncode, done.stderr) == (
        127,
        "cannot start /no/such/program: No such file or directory\n",
    )


def test_a_command_that_hangs(spawner: Spawner, tmp_path: Path) -> None:
    started = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired):
        spawner.run(["/bin/sleep", "600"], env={}, cwd=tmp_path, timeout=0.2)
    assert time.monotonic() - started < 60

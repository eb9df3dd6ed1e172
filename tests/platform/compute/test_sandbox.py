"""What code in the sandbox can see and do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from osmosis_platform.compute.sandbox import Bubblewrap, NoSandbox, choose_sandbox, find_bubblewrap
from osmosis_platform.errors import CannotStart

LOOK = """
import json, os, sys
def can_write(path):
    try:
        with open(path, "w") as file:
            file.write("x")
        return True
    except OSError:
        return False
seen = {
    "exists": {path: os.path.exists(path) for path in json.loads(sys.argv[1])},
    "writes": {path: can_write(path) for path in json.loads(sys.argv[2])},
    "processes": sum(name.isdigit() for name in os.listdir("/proc")),
    "secret": os.environ.get("A_KEY"),
}
print(json.dumps(seen))
"""


WORKS = isinstance(find_bubblewrap(), Bubblewrap)


@pytest.mark.skipif(not WORKS, reason="bubblewrap does not work here")
def test_only_its_own_folders_are_there(tmp_path: Path) -> None:
    code, data, artifacts = tmp_path / "data" / "code", tmp_path / "data", tmp_path / "data" / "artifacts"
    for folder in (code, artifacts):
        folder.mkdir(parents=True)
    (data / "osmosis.sqlite3").write_text("private")
    (code / "look.py").write_text(LOOK)
    python = Path(sys.base_prefix) / "bin" / "python3"
    looked_at = [
        str(data / "osmosis.sqlite3"),
        str(Path.home() / ".ssh"),
        str(Path.home() / ".cache"),
        "/etc/shadow",
        "/var",
        str(code),
    ]
    written = [
        str(code / "a"),
        str(artifacts / "a"),
        "/tmp/a",
        "/usr/a",
        str(python.parent / "a"),
        "/etc/hosts",
    ]
    sandbox = choose_sandbox("auto")
    assert isinstance(sandbox, Bubblewrap)
    command = sandbox.command(
        [str(python), "look.py", json.dumps(looked_at), json.dumps(written)],
        cwd=code,
        readonly=[Path(sys.base_prefix)],
        writable=[code, artifacts],
    )
    done = subprocess.run(
        command, capture_output=True, text=True, env={"A_KEY": "sesame"}, timeout=30, check=False
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["exists"] == {path: path == str(code) for path in looked_at}
    assert seen["writes"] == {path: path in written[:3] for path in written}
    assert seen["processes"] <= 3
    assert seen["secret"] == "sesame"
    assert "sesame" not in " ".join(command)
    assert not os.path.exists("/tmp/a")


@pytest.mark.skipif(not WORKS, reason="bubblewrap does not work here")
def test_settings_of_the_kernel_cannot_be_changed(tmp_path: Path) -> None:
    name = Path("/proc/sys/kernel/core_pattern")
    value = name.read_text()
    sandbox = choose_sandbox("auto")

    def run(script: str) -> subprocess.CompletedProcess[str]:
        command = sandbox.command(["/bin/sh", "-c", script], cwd=tmp_path, readonly=(), writable=(tmp_path,))
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)

    # It writes what is there already: a sandbox that lets it through changes nothing.
    done = run(f"cat {name} > value && cat value > {name}")
    assert done.returncode != 0
    assert (tmp_path / "value").read_text() == value
    assert "Read-only file system" in done.stderr or "Permission denied" in done.stderr
    for private in ("/etc/ssl/private", "/etc/shadow", "/etc/pki/tls/private"):
        assert run(f"test -e {private}").returncode == 1


def test_without_bubblewrap_it_says_so_plainly(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert isinstance(choose_sandbox("auto"), NoSandbox)
    assert "WITHOUT a sandbox (bwrap is not installed)" in caplog.text
    with pytest.raises(CannotStart, match="bwrap is not installed"):
        choose_sandbox("bubblewrap")


def test_no_sandbox_when_configured(caplog: pytest.LogCaptureFixture) -> None:
    assert isinstance(choose_sandbox("none"), NoSandbox)
    assert "without a sandbox, as configured" in caplog.text


@pytest.mark.skipif(not WORKS, reason="bubblewrap does not work here")
def test_a_rollout_can_make_sandboxes_of_its_own(tmp_path: Path) -> None:
    sandbox = choose_sandbox("auto")
    assert isinstance(sandbox, Bubblewrap)
    if not sandbox.user_namespace:
        pytest.skip("user namespaces are not available")
    inner = [sandbox.program, "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--tmpfs", "/tmp"]
    # The processes outside of it have no number in its /proc.
    look = ["/bin/sh", "-c", "echo nested; ls -d /proc/[0-9]* | wc -l"]
    command = sandbox.command([*inner, *look], cwd=tmp_path, readonly=[], writable=[tmp_path])
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    said, processes = done.stdout.split()
    assert (said, int(processes) <= 4) == ("nested", True)


@pytest.mark.skipif(not WORKS or os.geteuid() != 0, reason="needs bubblewrap, and root")
def test_under_root_a_rollout_is_a_user_without_any_account(tmp_path: Path) -> None:
    code, shared, cache = tmp_path / "code", tmp_path / "shared", tmp_path / "cache"
    for folder in (code / "deep", shared, cache):
        folder.mkdir(parents=True)
    (code / "deep" / "mine").write_text("old")
    (code / "away").symlink_to("/etc/hosts")
    (cache / "package").write_text("a package")
    os.link(cache / "package", code / "package")
    (shared / "for-root").write_text("private")
    (shared / "for-root").chmod(0o600)
    tmp_path.chmod(0o700)
    owner = os.stat("/etc/hosts").st_uid
    sandbox = find_bubblewrap()
    assert isinstance(sandbox, Bubblewrap)
    script = "id -u; echo new > deep/mine && echo mine; cat package; cat ../shared/for-root"
    command = sandbox.command(["/bin/sh", "-c", script], cwd=code, readonly=[shared], writable=[code])
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.stdout.split() == ["1000", "mine", "a", "package"]
    assert "for-root: Permission denied" in done.stderr
    assert sandbox.user is not None
    assert (code / "deep" / "mine").stat().st_uid == sandbox.user
    assert (code / "away").lstat().st_uid == sandbox.user
    # What has another name elsewhere stays whose it is: packages are links to uv's cache.
    assert (cache / "package").stat().st_uid == 0
    assert os.stat("/etc/hosts").st_uid == owner
    assert not os.path.exists("/tmp/0")


PARENT = """
import json, sys, time
from pathlib import Path
from osmosis_platform.compute.children import Spawner
child = Spawner().start(json.loads(sys.argv[1]), env={}, cwd=Path("/"), on_line=lambda line: print(child.pid, flush=True))
time.sleep(600)
"""


@pytest.mark.skipif(not WORKS, reason="bubblewrap does not work here")
def test_a_sandbox_ends_with_the_killed_platform(alive: Callable[[int], bool], tmp_path: Path) -> None:
    command = choose_sandbox("auto").command(
        ["/bin/sh", "-c", "sleep 0.2; echo ready; exec sleep 600"],
        cwd=tmp_path,
        readonly=(),
        writable=(tmp_path,),
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, json.dumps(command)], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    with parent.stdout as output:
        child = int(output.readline())
    assert alive(child)
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 60
    while alive(child):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_memory_backed_folders_are_bounded(tmp_path: Path) -> None:
    sandbox = find_bubblewrap()
    assert isinstance(sandbox, Bubblewrap)
    script = "head -c 100000000 /dev/zero > /fill 2>/dev/null; stat -c %s /fill; df -B1 --output=size /tmp /dev/shm | tail -n 2"
    command = sandbox.command(["/bin/sh", "-c", script], cwd=Path("/"), readonly=(), writable=())
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    written, tmp, shared = (int(line) for line in done.stdout.split())
    assert written <= 64 * 1024**2
    assert (tmp, shared) == (1024**3, 256 * 1024**2)

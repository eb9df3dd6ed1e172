"""What a hostile program in the sandbox tries, and what comes of it."""

import asyncio
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from osmosis_ai.rollout.sandbox.bubblewrap import find_bubblewrap, prepare_root
from osmosis_ai.rollout.sandbox.process import CommandTimeoutError

NAMES = "cat /proc/[0-9]*/comm"
LIST = "for f in /proc/[0-9]*/cmdline; do tr '\\0' ' ' < $f; echo; done 2>/dev/null"
SECRET = "osmosis-test-secret-value"


async def test_writing_outside_reaches_nothing_of_the_host(make_sandbox: Any, tmp_path: Path) -> None:
    sandbox = await make_sandbox()
    victim = tmp_path / "victim.txt"
    victim.write_text("untouched")
    done = await sandbox.exec(
        f"mkdir -p {tmp_path}; echo hacked > {victim}; echo hacked > /usr/hacked; touch /usr/bin/hacked /lib/hacked; "
        "rm -rf /usr/share; echo x >> /etc/ld.so.cache; rm -f /etc/ssl/certs/*; true"
    )
    assert done.return_code == 0
    assert victim.read_text() == "untouched"
    assert done.stderr.count("Read-only file system") >= 3
    assert not Path("/usr/hacked").exists()
    assert Path("/usr/share").is_dir()


async def test_settings_of_the_kernel_cannot_be_written(make_sandbox: Any) -> None:
    # They belong to root by number: without a cover the host's root could change them though it has no privileges inside.
    sandbox = await make_sandbox()
    before = Path("/proc/sys/kernel/core_pattern").read_bytes()
    done = await sandbox.exec(
        "cat /proc/sys/kernel/core_pattern | tee /proc/sys/kernel/core_pattern; "
        "find /proc/sys -type f -writable 2>/dev/null | while read f; do (: >> $f) 2>/dev/null && echo WRITABLE $f; done"
    )
    assert "Read-only file system" in done.stderr
    assert "WRITABLE" not in done.stdout
    assert Path("/proc/sys/kernel/core_pattern").read_bytes() == before


async def test_files_and_secrets_of_the_host_cannot_be_read(
    make_sandbox: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", SECRET)
    (tmp_path / "secret.txt").write_text(SECRET)
    sandbox = await make_sandbox()
    done = await sandbox.exec(
        f"cat {tmp_path}/secret.txt /etc/shadow /root/.ssh/* /root/.bash_history; env; "
        "cat /proc/*/environ /proc/*/cmdline | tr '\\0' '\\n'; ls -a /root /home /etc/ssl /var /run; cat /etc/passwd; ls /sys"
    )
    said = (done.stdout or "") + (done.stderr or "")
    assert SECRET not in said
    assert "shadow: No such file" in said
    assert "private" not in said
    # Not even where things are.
    assert str(tmp_path / "state") not in said
    assert [line.split(":")[0] for line in said.splitlines() if ":x:" in line] == ["root", "nobody"]


async def test_links_out_of_the_sandbox_are_not_followed(make_sandbox: Any, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text(SECRET)
    sandbox = await make_sandbox()
    await sandbox.exec(
        f"cd /logs/agent && ln -s {tmp_path}/secret.txt trajectory.json && ln -s {tmp_path} folder && mkfifo pipe && "
        f"echo fine > result.json && mkdir sub && ln -s /etc/hosts sub/hosts && ln result.json sub/hard.json; ln -s {tmp_path} /out"
    )
    target = tmp_path / "downloaded"
    await sandbox.download_dir("/logs/agent", target)
    files = sorted(path.relative_to(target).as_posix() for path in target.rglob("*") if not path.is_dir())
    assert files == ["result.json", "sub/hard.json"]
    with pytest.raises(RuntimeError, match="cannot copy /logs/agent/trajectory"):
        await sandbox.download_file("/logs/agent/trajectory.json", tmp_path / "one")
    assert not (tmp_path / "one").exists()
    (tmp_path / "note").write_text("from the host")
    with pytest.raises(RuntimeError, match="cannot copy files to /out"):
        await sandbox.upload_file(tmp_path / "note", "/out/planted")
    assert not (tmp_path / "planted").exists()


async def test_processes_of_the_host_are_out_of_reach(make_sandbox: Any) -> None:
    host = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "input()", stdin=asyncio.subprocess.PIPE
    )
    sandbox = await make_sandbox()
    done = await sandbox.exec(f"kill -9 {host.pid}; kill -9 -- -1; ls -d /proc/[0-9]* | wc -l")
    # The supervisor was among what it could kill: the sandbox is over, and the next command has a new one.
    assert done.return_code == 137
    assert "first process is gone" in done.stderr
    again = await sandbox.exec("ls -d /proc/[0-9]* | wc -l")
    assert int(again.stdout) < 12
    await host.communicate(b"\n")
    assert host.returncode == 0


async def test_killing_the_supervisor_alone_ends_the_sandbox(make_sandbox: Any) -> None:
    sandbox = await make_sandbox()
    running = asyncio.create_task(sandbox.exec("sleep 987655"))
    kill = "for p in /proc/[0-9]*; do [ \"$(awk '/^PPid/ {print $2}' $p/status)\" = 1 ] && kill -9 ${p#/proc/}; done; sleep 987656"
    done = await sandbox.exec(kill)
    assert done.return_code == (await running).return_code == 137
    assert (await sandbox.exec("echo again")).stdout == "again\n"


async def test_no_network_reaches_not_even_the_machine_itself(make_sandbox: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        knock = f"(exec 3<>/dev/tcp/127.0.0.1/{port}) && echo reached || echo refused"
        closed = await make_sandbox()
        assert (await closed.exec(knock)).stdout == "refused\n"
        assert (await closed.exec("tail -n +2 /proc/net/route")).stdout == ""
        shared = await make_sandbox(public=True)
        assert (await shared.exec(knock)).stdout == "reached\n"


async def test_no_privileges_can_be_gained(make_sandbox: Any) -> None:
    sandbox = await make_sandbox()
    done = await sandbox.exec(
        "grep -E 'Cap(Prm|Eff|Bnd|Amb)|NoNewPrivs' /proc/self/status; mount -t tmpfs x /mnt && echo MOUNTED; "
        "unshare -Ur true && echo UNSHARED; mknod /tmp/disk b 8 0 && echo MADE; chroot / true && echo CHROOTED; "
        "mount -o remount,rw /proc/sys && echo REMOUNTED"
    )
    sets = [line.split()[1] for line in done.stdout.splitlines()]
    assert sets == ["0000000000000000"] * 4 + ["1"]


async def test_a_memory_bomb_ends_its_sandbox_only(make_sandbox: Any) -> None:
    sandbox = await make_sandbox(memory_mb=200)
    # Many processes, each within the limit.
    bomb = "import time; x = bytearray(60 << 20); time.sleep(600)"
    done = await sandbox.exec(f"for i in 1 2 3 4 5 6; do python3 -c '{bomb}' & done; wait")
    assert done.return_code == 137
    assert "more than 200 MiB of memory" in done.stderr
    after = await sandbox.exec("cat /tmp/x; echo alive")
    assert after.stdout == "alive\n"


async def test_shared_memory_counts_too(make_sandbox: Any) -> None:
    sandbox = await make_sandbox(memory_mb=150)
    bomb = "import mmap, time; m = mmap.mmap(-1, 300 << 20); [m.write(b'x' * (1 << 20)) for _ in range(300)]; time.sleep(600)"
    done = await sandbox.exec(f'python3 -c "{bomb}"')
    assert "more than 150 MiB of memory" in done.stderr


async def test_one_process_cannot_take_much_more_than_the_limit(make_sandbox: Any) -> None:
    sandbox = await make_sandbox(memory_mb=200)
    done = await sandbox.exec("python3 -c 'bytearray(4 << 30)'")
    assert done.return_code == 1
    assert "MemoryError" in done.stderr


@pytest.mark.parametrize(
    "bomb",
    [
        "import os, time\nfor _ in range(200):\n  if os.fork() == 0: os.setsid(); time.sleep(600)\ntime.sleep(600)",
        "import threading, time\nfor _ in range(200): threading.Thread(target=time.sleep, args=[600]).start()",
    ],
    ids=["forks", "threads"],
)
async def test_a_bomb_of_processes_is_ended(make_sandbox: Any, bomb: str) -> None:
    sandbox = await make_sandbox(processes=80)
    await sandbox.exec(f"cat > /tmp/bomb.py <<'E'\n{bomb}\nE")
    done = await sandbox.exec("python3 /tmp/bomb.py")
    assert done.return_code == 137
    assert "more than 80 processes and threads" in done.stderr
    assert len((await sandbox.exec(NAMES)).stdout.splitlines()) < 12


async def test_files_cannot_grow_without_bounds(make_sandbox: Any) -> None:
    sandbox = await make_sandbox(file_mb=1)
    done = await sandbox.exec("head -c 3000000 /dev/zero > /tmp/big; stat -c %s /tmp/big")
    assert int(done.stdout) == 2**20
    done = await sandbox.exec("head -c 600000000 /dev/zero > /dev/shm/big")
    assert done.return_code != 0


async def test_time_is_up_for_all_that_a_command_started(make_sandbox: Any) -> None:
    sandbox = await make_sandbox()
    await sandbox.exec("sleep 987650 > /dev/null 2>&1 &")
    with pytest.raises(CommandTimeoutError, match="timed out after 1 seconds"):
        await sandbox.exec(
            "trap '' TERM INT; (setsid nohup sleep 987651 &) ; setsid sh -c 'sleep 987652 & sleep 987653'; sleep 987655",
            timeout_sec=1,
        )
    # What an earlier command left in the background is not its own.
    assert re.findall(r"sleep (98765\d)", (await sandbox.exec(LIST)).stdout) == ["987650"]


async def test_a_cancelled_command_is_ended_too(make_sandbox: Any, wait_until: Any) -> None:
    sandbox = await make_sandbox()
    running = asyncio.create_task(sandbox.exec("touch /tmp/started; sleep 987654"))
    async with asyncio.timeout(60):
        while not await sandbox.is_file("/tmp/started"):  # noqa: ASYNC110 - a file of another process has no event
            await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert "sleep" not in (await sandbox.exec(NAMES)).stdout.split()


async def test_output_without_end_is_cut(make_sandbox: Any) -> None:
    sandbox = await make_sandbox()
    done = await sandbox.exec("head -c 40000000 /dev/zero | tr '\\0' x; echo told >&2")
    assert done.return_code == 0
    assert len(done.stdout) < 2**24 + 200
    assert done.stdout.endswith("was dropped]\n")
    assert done.stderr == "told\n"


async def test_a_restart_does_not_follow_links_that_were_left(make_sandbox: Any, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    sandbox = await make_sandbox(memory_mb=100)
    done = await sandbox.exec(
        "mv /etc /etc2; mv /opt /opt2; rm -rf /dev /proc; "
        f"ln -s /oldroot{outside} /etc; ln -s ../../../../../../../../oldroot{outside} /opt; kill -9 -- -1"
    )
    assert done.return_code == 137
    assert (await sandbox.exec("ls /opt/osmosis")).return_code == 0
    assert list(outside.iterdir()) == []


def test_an_ordinary_user_gets_the_same_sandbox(tmp_path: Path) -> None:
    """The tests run as root in many places: here a user without any rights starts bubblewrap with our options."""
    if os.geteuid() != 0:
        pytest.skip("everything else here already runs as an ordinary user")
    found = find_bubblewrap()
    root = Path(os.path.realpath("/tmp")) / f"osmosis-test-{os.getpid()}"
    root.mkdir()
    try:
        prepare_root(root)
        for path in (root, *root.rglob("*")):
            os.chown(path, 65534, 65534, follow_symlinks=False)
        script = "id -u; echo made > /made; echo x > /usr/made; cat /proc/sys/kernel/ostype; (exec 3<>/dev/tcp/127.0.0.1/1)"
        done = subprocess.run(
            ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", found.program,
             *found.options(root=root), "--", "/bin/bash", "-c", script],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        if "Creating new namespace failed" in done.stderr or "No permissions to create" in done.stderr:
            pytest.skip("this machine allows no namespaces to ordinary users")
        assert done.stdout.split() == ["0", "Linux"]
        assert "Read-only file system" in done.stderr
        assert (root / "made").read_text() == "made\n"
    finally:
        subprocess.run(["rm", "-rf", str(root)], check=True)

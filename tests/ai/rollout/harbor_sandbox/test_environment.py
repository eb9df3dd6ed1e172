"""The environment as Harbor uses it."""

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from harbor.models.task.config import EnvironmentConfig, NetworkMode, NetworkPolicy
from harbor.models.trial.config import ResourceMode

from osmosis_ai.rollout.backend.harbor.image import patch_dockerfile_with_sdk
from osmosis_ai.rollout.sandbox import BubblewrapEnvironment, bubblewrap
from osmosis_ai.rollout.sandbox.bubblewrap import find_bubblewrap
from osmosis_ai.rollout.sandbox.dockerfile import Image, read_dockerfile
from osmosis_ai.rollout.sandbox.errors import SandboxError
from osmosis_ai.rollout.sandbox.state import State


async def test_commands_get_their_folder_environment_and_status(make_sandbox: Any) -> None:
    sandbox = await make_sandbox(persistent_env={"KEPT": "yes"})
    done = await sandbox.exec(
        "pwd; echo $KEPT $GIVEN; whoami; echo bad >&2; exit 7", env={"GIVEN": "this time"}
    )
    assert (done.stdout, done.stderr, done.return_code) == ("/app\nyes this time\nroot\n", "bad\n", 7)
    assert (await sandbox.exec("pwd", cwd="/tmp", user="root")).stdout == "/tmp\n"
    assert (await sandbox.exec("kill -TERM $$")).return_code == 143
    assert "cannot start the command" in (await sandbox.exec("true", cwd="/nowhere")).stderr
    with pytest.raises(SandboxError, match="cannot run commands as 'agent'"):
        await sandbox.exec("true", user="agent")


async def test_files_and_background_processes_outlive_a_command(make_sandbox: Any) -> None:
    sandbox = await make_sandbox()
    await sandbox.exec(
        "echo kept > note; (while [ ! -e stop ]; do sleep 0.01; done; echo stopped > state) > /dev/null 2>&1 &"
    )
    done = await sandbox.exec(
        "cat note; touch stop; for i in $(seq 6000); do [ -e state ] && break; sleep 0.01; done; cat state"
    )
    assert done.stdout == "kept\nstopped\n"


async def test_commands_run_side_by_side(make_sandbox: Any) -> None:
    sandbox = await make_sandbox()
    first = asyncio.create_task(sandbox.exec("mkfifo pipe; read word < pipe; echo got $word"))
    async with asyncio.timeout(60):
        while (await sandbox.exec("test -p pipe")).return_code != 0:  # noqa: ASYNC110 - made by another process
            await asyncio.sleep(0.01)
    await sandbox.exec("echo hello > pipe")
    assert (await first).stdout == "got hello\n"


async def test_output_is_passed_on_while_it_comes(make_sandbox: Any) -> None:
    sandbox = await make_sandbox()
    heard: list[tuple[str, str]] = []

    async def hear(text: str, stream: str) -> None:
        heard.append((stream, text))

    with sandbox.scoped_output_callback(hear):
        await sandbox.exec("printf 'h\\303'; sleep 0.1; printf '\\251llo'; echo oops >&2")
    assert "".join(text for stream, text in heard if stream == "stdout") == "héllo"
    assert ("stderr", "oops\n") in heard


async def test_files_go_in_and_out(make_sandbox: Any, tmp_path: Path) -> None:
    sandbox = await make_sandbox()
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    (source / "run.sh").write_text("#!/bin/sh\necho ran")
    (source / "run.sh").chmod(0o755)
    (source / "sub" / "data.bin").write_bytes(bytes(range(256)))
    await sandbox.upload_dir(source, "/new/place")
    await sandbox.upload_file(source / "run.sh", "/else where/it's.sh")
    assert (await sandbox.exec('/new/place/run.sh; "/else where/it\'s.sh"')).stdout == "ran\nran\n"
    assert await sandbox.is_dir("/new/place/sub")
    back = tmp_path / "back"
    await sandbox.download_dir("/new/place", back)
    assert (back / "sub" / "data.bin").read_bytes() == bytes(range(256))
    await sandbox.download_file("/new/place/sub/data.bin", tmp_path / "deep" / "data.bin")
    assert (tmp_path / "deep" / "data.bin").read_bytes() == bytes(range(256))
    await sandbox.download_dir_with_exclusions(
        source_dir="/new/place", target_dir=tmp_path / "some", exclude=["*.sh"]
    )
    assert [path.name for path in (tmp_path / "some").iterdir()] == ["sub"]
    for missing in (sandbox.download_file, sandbox.download_dir):
        with pytest.raises(SandboxError, match="cannot copy /nowhere/x from the sandbox"):
            await missing("/nowhere/x", tmp_path / "x")
    with pytest.raises(SandboxError, match="is not a regular file"):
        await sandbox.download_file("/new/place", tmp_path / "x")


async def test_what_lies_beside_a_dockerfile_that_copies_nothing_is_in_its_working_folder(
    make_sandbox: Any,
) -> None:
    dockerfile = (
        "FROM debian:12 AS one\nWORKDIR /first\nFROM one\nworkdir /srv\nWORKDIR work\nRUN apt-get install x\n"
    )
    sandbox = await make_sandbox(
        files={"Dockerfile": dockerfile, "input.txt": "given", "sub/deep.txt": "too"}
    )
    assert (
        await sandbox.exec("pwd; ls; cat input.txt sub/deep.txt")
    ).stdout == "/srv/work\ninput.txt\nsub\ngiventoo"


def test_what_the_backend_adds_to_a_dockerfile_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "Dockerfile"
    path.write_text("FROM debian:12\nWORKDIR /srv\n")
    before = read_dockerfile(path)
    patch_dockerfile_with_sdk(tmp_path, ["pydantic>=2"])
    assert path.read_text().count("COPY") == 2
    assert read_dockerfile(path) == before


async def test_a_dockerfile_is_followed_as_far_as_it_goes_without_a_build(make_sandbox: Any) -> None:
    dockerfile = """
FROM python:3.12 AS builder
COPY secret.txt /secret.txt
FROM debian:12
ENV PLACE=/srv/data MODE="two words"
ENV OLD form of it
WORKDIR /work
COPY --from=builder /x /y
COPY --chown=root:root *.csv notes/a.txt \\
     ${PLACE}/
COPY ["notes", "/notes"]
COPY notes/a.txt renamed.txt
ADD https://example.org/file /file
RUN apt-get update && apt-get install -y something
"""
    files = {"Dockerfile": dockerfile, "secret.txt": "s", "1.csv": "1", "2.csv": "2", "notes/a.txt": "a"}
    sandbox = await make_sandbox(files=files)
    done = await sandbox.exec('pwd; ls; ls /srv/data /notes; echo "$PLACE|$MODE|$OLD"; cat renamed.txt')
    assert done.stdout.split("\n") == [
        *("/work", "renamed.txt", "/notes:", "a.txt", "", "/srv/data:", "1.csv", "2.csv", "a.txt"),
        *("/srv/data|two words|form of it", "a"),
    ]
    assert (await sandbox.exec("ls /secret.txt /y /file")).return_code != 0


@pytest.mark.parametrize(
    ("copied", "message"), [("missing.txt", "which is not in"), ("../*", "which leads out of")]
)
async def test_a_dockerfile_cannot_copy_what_is_not_of_the_task(
    make_sandbox: Any, copied: str, message: str
) -> None:
    with pytest.raises(SandboxError, match=message):
        await make_sandbox(files={"Dockerfile": f"FROM a\nCOPY {copied} /x/\n"})


def test_the_working_folder_of_a_dockerfile(tmp_path: Path) -> None:
    path = tmp_path / "Dockerfile"
    assert read_dockerfile(path) == Image()
    for text, expected in {
        "FROM a": None,
        "FROM a\nWORKDIR /x\nFROM b": None,
        "FROM a AS one\nWORKDIR /x\nFROM b\nFROM one\nWORKDIR y": "/x/y",
        'FROM a\nWORKDIR "/x y"': "/x y",
        "# comment\nFROM a\nENV A=/q\nWORKDIR $A/z": "/q/z",
    }.items():
        path.write_text(text)
        assert read_dockerfile(path).workdir == expected


async def test_the_host_can_show_folders(make_sandbox: Any, tmp_path: Path) -> None:
    shown, given = tmp_path / "shown", tmp_path / "given"
    for folder in (shown, given):
        folder.mkdir()
        (folder / "note").write_text("from the host")
    mounts = [{"type": "bind", "source": str(given), "target": "/data"}]
    sandbox = await make_sandbox(readonly=[str(shown)], mounts=mounts)
    done = await sandbox.exec(f"cat {shown}/note; echo x > {shown}/note; echo written > /data/note")
    assert done.stdout == "from the host"
    assert (shown / "note").read_text() == "from the host"
    assert (given / "note").read_text() == "written\n"
    with pytest.raises(SandboxError, match="readonly: relative is not the absolute path"):
        await make_sandbox(readonly=["relative"])


async def test_the_network_can_change_between_phases(make_sandbox: Any) -> None:
    sandbox = await make_sandbox()
    with socket.create_server(("127.0.0.1", 0)) as server:
        knock = f"(exec 3<>/dev/tcp/127.0.0.1/{server.getsockname()[1]}) && echo reached || echo refused"
        await sandbox.exec("echo kept > note")
        assert (await sandbox.exec(knock)).stdout == "refused\n"
        await sandbox.set_network_policy(NetworkPolicy(network_mode=NetworkMode.PUBLIC))
        assert (await sandbox.exec(knock)).stdout == "reached\n"
        await sandbox.set_network_policy(NetworkPolicy(network_mode=NetworkMode.NO_NETWORK))
        assert (await sandbox.exec(knock)).stdout == "refused\n"
    assert (await sandbox.exec("cat note")).stdout == "kept\n"


async def test_a_list_of_allowed_hosts_is_refused(make_sandbox: Any) -> None:
    policy = NetworkPolicy(network_mode=NetworkMode.ALLOWLIST, allowed_hosts=["example.org"])
    with pytest.raises(ValueError, match="'allowlist' is not supported by bubblewrap"):
        await make_sandbox(phase_network_policies=[policy])


async def test_the_memory_of_the_task_is_the_limit(make_sandbox: Any) -> None:
    bomb = "python3 -c 'import time; x = bytearray(300 << 20); time.sleep(600)'"
    sandbox = await make_sandbox(task=EnvironmentConfig(memory_mb=128))
    assert "more than 128 MiB" in (await sandbox.exec(bomb)).stderr
    free = await make_sandbox(
        task=EnvironmentConfig(memory_mb=128), memory_enforcement_policy=ResourceMode.IGNORE
    )
    assert (await free.exec("python3 -c 'bytearray(300 << 20)'")).return_code == 0


async def test_a_task_of_several_services_is_refused(make_sandbox: Any) -> None:
    with pytest.raises(SandboxError, match=r"has a docker-compose\.yaml"):
        await make_sandbox(files={"docker-compose.yaml": "services: {}"})


async def test_stopping_leaves_nothing(make_sandbox: Any, tmp_path: Path) -> None:
    sandbox = await make_sandbox()
    await sandbox.exec(f"mkdir -p a/b; touch a/b/c; chmod 000 a/b a; sleep {MARK}1 &")
    await sandbox.stop(delete=True)
    assert list((tmp_path / "state").iterdir()) == []
    assert not _running(f"{MARK}1")
    with pytest.raises(SandboxError, match="not started"):
        await sandbox.exec("true")


async def test_stopping_without_deleting_keeps_the_files(make_sandbox: Any, tmp_path: Path) -> None:
    sandbox = await make_sandbox()
    await sandbox.exec("echo kept > note")
    await sandbox.stop(delete=False)
    State.create(str(tmp_path / "state")).remove()
    [folder] = (tmp_path / "state").iterdir()
    assert (folder / "root" / "app" / "note").read_text() == "kept\n"


def test_what_a_killed_process_left_is_removed_by_the_next_sandbox(tmp_path: Path) -> None:
    code = """
import os, signal, sys
from osmosis_ai.rollout.sandbox.state import State
(State.create(sys.argv[1]).root / "key").write_text("secret")
os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False, timeout=120)
    assert [path.read_text() for path in tmp_path.glob("*/root/key")] == ["secret"]
    first, second = State.create(str(tmp_path)), State.create(str(tmp_path))
    assert set(tmp_path.iterdir()) == {first.folder, second.folder}
    first.remove()
    second.remove()
    assert list(tmp_path.iterdir()) == []


# Other runs of these tests on the same machine have theirs.
MARK = str(10**6 + os.getpid())


def _running(mark: str) -> bool:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if f"sleep\0{mark}\0" in path.read_text():
                return True
        except OSError:
            continue
    return False


async def test_the_sandbox_dies_with_its_host(tmp_path: Path, wait_until: Any) -> None:
    code = """
import asyncio, sys
from pathlib import Path
from osmosis_ai.rollout.sandbox.bubblewrap import prepare_root
from osmosis_ai.rollout.sandbox.limits import Limits
from osmosis_ai.rollout.sandbox.process import Session
from osmosis_ai.rollout.sandbox.python_runtime import prepare_python
async def main():
    root = Path(sys.argv[1])
    prepare_root(root)
    session = Session(Limits())
    await session.start(root, prepare_python(root), network=False)
    await session.run(["sh", "-c", f"setsid sleep {sys.argv[2]} >/dev/null 2>&1 &"], cwd="/", env={"PATH": "/usr/bin"})
    print("started", flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""
    root = tmp_path / "root"
    root.mkdir()
    host = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", code, str(root), f"{MARK}2"), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert await host.stdout.readline() == b"started\n"
        await wait_until(lambda: _running(f"{MARK}2"), timeout_sec=60)
    finally:
        host.kill()
        await host.communicate()
    await wait_until(lambda: not _running(f"{MARK}2"), timeout_sec=60)


def test_without_the_extra_the_access_says_how_to_install_it_without_bubblewrap() -> None:
    code = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "harbor":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
import osmosis_ai.rollout.sandbox as sandbox
try:
    sandbox.BubblewrapEnvironment
except ModuleNotFoundError as error:
    print(error.name, error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.startswith("harbor ")
    assert 'pip install "osmosis-ai[harbor]"' in done.stdout


def test_without_bubblewrap_one_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    find_bubblewrap.cache_clear()
    try:
        with pytest.raises(SandboxError, match=r"needs bubblewrap.*apt-get install bubblewrap"):
            find_bubblewrap()
        with pytest.raises(SystemExit, match="needs bubblewrap"):
            BubblewrapEnvironment.preflight()
    finally:
        find_bubblewrap.cache_clear()


def test_a_bubblewrap_that_cannot_work_says_why_without_bubblewrap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    bubblewrap.find_bubblewrap.cache_clear()
    try:
        with pytest.raises(SandboxError, match=r"No permissions to create new namespace.*user namespaces"):
            find_bubblewrap()
    finally:
        find_bubblewrap.cache_clear()

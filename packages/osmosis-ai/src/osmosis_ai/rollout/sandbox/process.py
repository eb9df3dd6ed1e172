"""A running sandbox, and the commands in it."""

import asyncio
import contextlib
import itertools
import json
import os
import signal
import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from osmosis_ai.rollout.sandbox.bubblewrap import Mount, clear_targets, find_bubblewrap
from osmosis_ai.rollout.sandbox.errors import SandboxError
from osmosis_ai.rollout.sandbox.limits import Limits
from osmosis_ai.rollout.sandbox.output import OnOutput, Output
from osmosis_ai.rollout.sandbox.python_runtime import base_interpreter
from osmosis_ai.rollout.sandbox.watchdog import WATCHDOG, Watched

_START_TIMEOUT_S = 120.0
_KILL_TIMEOUT_S = 30.0
_CREDENTIALS = struct.Struct("3i")
KILLED_EXIT_CODE = 137


class CommandTimeoutError(SandboxError):
    """A command ran out of time; it and all that it started was ended."""

    default_code = "SANDBOX_COMMAND_TIMEOUT"


@dataclass(frozen=True, slots=True)
class Finished:
    """How a command ended. A code over 128 means a signal; 137 also that the whole sandbox was ended."""

    exit_code: int
    stdout: str
    stderr: str


class Session:
    """One life of a sandbox: from its start until all its processes are gone."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.ended_because: str | None = None
        self._numbers = itertools.count(1)
        self._exits: dict[int, asyncio.Future[int]] = {}
        self._kills: dict[int, asyncio.Future[bool]] = {}
        self._process: asyncio.subprocess.Process | None = None
        self._link: socket.socket | None = None
        self._watched: Watched | None = None
        self._listener: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None

    @property
    def alive(self) -> bool:
        """Whether commands can be started."""
        return self._listener is not None and not self._listener.done()

    async def start(self, root: Path, mounts: Sequence[Mount], *, network: bool) -> None:
        """Start the sandbox.

        Raises:
            SandboxError: with what bubblewrap said.
        """
        bubblewrap = await asyncio.to_thread(find_bubblewrap)
        self._link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._link.setblocking(False)
        self._link.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        info_read, info_write = os.pipe()
        said = _memory_file(b"")
        program = Path(__file__).with_name("supervisor.py").read_text(encoding="utf-8")
        # In a file, because arguments can be read inside, and they name folders of the host.
        words = bubblewrap.options(root=root, mounts=mounts, network=network)
        options = _memory_file(b"".join(os.fsencode(word) + b"\0" for word in words))
        try:
            await asyncio.to_thread(clear_targets, root, mounts)
            self._process = await asyncio.create_subprocess_exec(
                bubblewrap.program,
                *("--info-fd", str(info_write), "--args", str(options.fileno()), "--"),
                *(str(base_interpreter()), "-I", "-S", "-c", program),
                *(str(theirs.fileno()), json.dumps(self._rlimits())),
                env={},  # that of bubblewrap can be read inside
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=said,
                pass_fds=(theirs.fileno(), info_write, options.fileno()),
                start_new_session=True,
            )
            theirs.close()
            pid = await self._ready()
            if pid is None:
                said.seek(0)
                raise SandboxError(
                    f"the sandbox cannot start: {said.read(4096).decode(errors='replace').strip() or 'no reason given'}"
                )
            self._watch(pid, info_read)
        except BaseException:
            await self.close()
            raise
        finally:
            with contextlib.suppress(OSError):
                theirs.close()
            for fd in (info_read, info_write):
                os.close(fd)
            said.close()
            options.close()
        self._listener = asyncio.create_task(self._listen())

    async def run(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        timeout_sec: float | None = None,
        stdin: int | None = None,
        stdout: int | None = None,
        on_output: OnOutput | None = None,
    ) -> Finished:
        """Run a command to its end. ``stdin`` and ``stdout`` are descriptors that it gets as they are.

        What it started in the background goes on; what that writes later is lost.

        Raises:
            CommandTimeoutError: when it takes longer than ``timeout_sec``; a cancelled call ends it likewise.
        """
        number = next(self._numbers)
        exited: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._exits[number] = exited
        streams = {
            name: Output(name, self.limits.output_mb * 2**20, on_output) for name in ("stdout", "stderr")
        }
        try:
            request = json.dumps({"argv": list(argv), "cwd": cwd, "env": dict(env)})
            with _memory_file(request.encode()) as asked, _memory_file(b"") as empty:
                fds = [
                    asked.fileno(),
                    empty.fileno() if stdin is None else stdin,
                    streams["stdout"].write_fd if stdout is None else stdout,
                    streams["stderr"].write_fd,
                ]
                if not await self._send({"do": "run", "id": number}, fds):
                    _resolve(exited, KILLED_EXIT_CODE)
            for stream in streams.values():
                stream.begin()
            try:
                async with asyncio.timeout(timeout_sec):
                    code = await exited
            except TimeoutError:
                await self.end(number)
                raise CommandTimeoutError(f"Command timed out after {timeout_sec} seconds") from None
            except asyncio.CancelledError:
                await asyncio.shield(self.end(number))
                raise
        finally:
            self._exits.pop(number, None)
            for stream in streams.values():
                await stream.finish()
        stderr = streams["stderr"].text()
        if code == KILLED_EXIT_CODE and not self.alive:
            stderr += f"\nThe sandbox was ended: {self.ended_because}.\n"
        return Finished(code, streams["stdout"].text(), stderr)

    async def end(self, number: int) -> None:
        """End a command with all that it started; the whole sandbox when that does not work."""
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._kills[number] = done
        gone = False
        try:
            if await self._send({"do": "kill", "id": number}, []):
                async with asyncio.timeout(_KILL_TIMEOUT_S):
                    gone = await done
        except TimeoutError:
            pass
        finally:
            self._kills.pop(number, None)
        if not gone:
            self.ended_because = self.ended_because or "a command could not be ended alone"
            await self.close()

    async def close(self) -> None:
        """End every process of the sandbox. Afterwards none is left."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        if self._watched is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._watched.pid_fd, signal.SIGKILL)
            await _readable(self._watched.pid_fd)
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        if self._listener is not None:
            await asyncio.wait([self._listener])
        if self._link is not None:
            self._link.close()
        if self._watched is not None:
            WATCHDOG.remove(self._watched)
            os.close(self._watched.proc_fd)
            os.close(self._watched.pid_fd)

    def _rlimits(self) -> dict[str, int]:
        return {
            "RLIMIT_CORE": 0,
            "RLIMIT_FSIZE": self.limits.file_mb * 2**20,
            # What the kernel itself refuses lies over what the watchdog allows, so that a sandbox over its limits ends instead
            # of going on half dead. It counts memory that is never touched as well, and no processes of the host's root.
            "RLIMIT_NPROC": self.limits.processes + 128,
            "RLIMIT_DATA": (self.limits.memory_mb + 1024) * 2**20,
        }

    async def _ready(self) -> int | None:
        """The host's number of the supervisor once it runs, None when it never will."""
        link = self._link
        assert link is not None
        try:
            async with asyncio.timeout(_START_TIMEOUT_S):
                await _readable(link.fileno())
        except TimeoutError:
            return None
        data, ancillary, _, _ = link.recvmsg(4096, socket.CMSG_SPACE(_CREDENTIALS.size))
        if not data:
            return None
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
                return int(_CREDENTIALS.unpack(content[: _CREDENTIALS.size])[0])
        return None

    def _watch(self, supervisor: int, info_fd: int) -> None:
        first = int(json.loads(os.read(info_fd, 4096))["child-pid"])
        try:
            pid_fd = os.pidfd_open(first)
            proc_fd = os.open(f"/proc/{supervisor}/root/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise SandboxError(f"the sandbox cannot be watched, so it is not used: {error}") from error

        def breach(reason: str) -> None:
            self.ended_because = self.ended_because or reason

        self._watched = Watched(proc_fd, pid_fd, self.limits, breach)
        WATCHDOG.add(self._watched)

    async def _send(self, message: dict[str, Any], fds: list[int]) -> bool:
        """Whether the supervisor will get the message."""
        assert self._link is not None
        while self.alive:
            try:
                socket.send_fds(self._link, [json.dumps(message).encode()], fds)
                return True
            except BlockingIOError:  # hundreds of messages are waiting
                await asyncio.sleep(0.01)
            except OSError:
                return False
        return False

    async def _listen(self) -> None:
        assert self._link is not None
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            while data := await loop.sock_recv(self._link, 4096):
                message = json.loads(data)
                if "exit" in message:
                    _resolve(self._exits.get(message["id"]), int(message["exit"]))
                else:
                    _resolve(self._kills.get(message["id"]), bool(message["killed"]))
        # The supervisor is gone, or what inside took its place does not keep to the protocol.
        self.ended_because = self.ended_because or "its first process is gone"
        if self._watched is not None:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(self._watched.pid_fd, signal.SIGKILL)
        for exited in self._exits.values():
            _resolve(exited, KILLED_EXIT_CODE)
        for killed in self._kills.values():
            _resolve(killed, False)


def _memory_file(content: bytes) -> IO[bytes]:
    file = os.fdopen(os.memfd_create("osmosis"), "w+b", buffering=0)
    file.write(content)
    file.seek(0)
    return file


async def _readable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    readable: asyncio.Future[None] = loop.create_future()
    loop.add_reader(fd, _resolve, readable, None)
    try:
        await readable
    finally:
        loop.remove_reader(fd)


def _resolve[T](future: "asyncio.Future[T] | None", value: T) -> None:
    if future is not None and not future.done():
        future.set_result(value)

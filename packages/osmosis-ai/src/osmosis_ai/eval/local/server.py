"""The rollout server of a local evaluation: the entrypoint in its own environment, started again when it ends."""

import asyncio
import contextlib
import json
import os
import signal
import socket
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import httpx

from osmosis_ai.errors import OsmosisError
from osmosis_ai.eval.local.folder import RunFolder, now, write_json
from osmosis_ai.eval.local.sink import FolderSink
from osmosis_ai.processes.access_lines import is_success_access_line
from osmosis_ai.processes.launch import command_line

HEALTH_SECONDS = 90.0
MAX_RESTARTS = 5
_IMPORT_SECONDS = 120.0
_POLL_SECONDS = 0.2
_TERM_SECONDS = 5.0
_TAIL_LINES = 20
_LONGEST_LINE = 64 * 1024
# Like on the platform, a rollout does not see the whole environment of whoever starts it.
_PASSED_ON = (
    *("HOME", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "TZ", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "HF_HOME"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"),
)


class RolloutServerError(OsmosisError):
    """The rollout server does not start, or ends again and again."""

    default_code = "ROLLOUT_SERVER_FAILED"


@dataclass(frozen=True, slots=True)
class ServerPlan:
    """What to start: ``python`` of the rollout's environment, the code folder, the entrypoint and its own variables."""

    python: Path
    code: Path
    entrypoint: str
    env: Mapping[str, str]
    port: int

    def full_env(self) -> dict[str, str]:
        """The variables of the process."""
        passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        local = "127.0.0.1,localhost"
        return {
            **passed,
            "NO_PROXY": local,
            "no_proxy": local,
            "PATH": f"{self.python.parent}:{os.environ.get('PATH', os.defpath)}",
            "PYTHONUNBUFFERED": "1",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            **self.env,
        }


def require_free(port: int) -> None:
    """Check that the rollout server can listen on the port: another server there would be taken for it.

    Raises:
        OSError: it cannot.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))


async def check_entrypoint(plan: ServerPlan) -> list[str]:
    """Import the entrypoint in its environment; its warnings.

    Raises:
        RolloutServerError: it does not import, or has not exactly one workflow and one grader.
    """
    command = ("-m", "osmosis_ai.rollout.discovery", str(plan.code), plan.entrypoint)
    child = await _start(plan, command, plan.full_env(), stderr=asyncio.subprocess.PIPE)
    try:
        out, err = await asyncio.wait_for(child.communicate(), _IMPORT_SECONDS)
    except TimeoutError:
        raise _unusable(f"importing {plan.entrypoint} took longer than {_IMPORT_SECONDS:.0f} s") from None
    finally:
        _kill(child)
    try:
        found = json.loads(out.decode().strip().splitlines()[-1])
    except (ValueError, IndexError):
        tail = "\n".join(err.decode("utf-8", "replace").splitlines()[-8:])
        raise _unusable(tail or f"status {child.returncode}") from None
    problems = [str(problem["message"]) for problem in found.get("problems", [])]
    if problems or child.returncode != 0:
        raise _unusable("; ".join(problems) or f"status {child.returncode}")
    return [str(warning["message"]) for warning in found.get("warnings", [])]


def _unusable(reason: str) -> RolloutServerError:
    return RolloutServerError(f"Entrypoint does not import: {reason}", code="ENTRYPOINT_FAILED")


class LocalRolloutServer:
    """An async context manager; inside it the server is healthy, or being started again after it ended.

    ``failed`` is done when it ended more than ``MAX_RESTARTS`` times.
    """

    def __init__(self, plan: ServerPlan, folder: RunFolder, sink: FolderSink) -> None:
        self._plan = plan
        self._folder = folder
        self._sink = sink
        self._name = uuid4().hex
        self._starts = 0
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._child: asyncio.subprocess.Process | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[None] | None = None
        self.failed: asyncio.Future[RolloutServerError] = asyncio.get_running_loop().create_future()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._plan.port}"

    @property
    def instance_id(self) -> str:
        """The identity of the process that runs now."""
        return f"{self._name}.{self._starts}"

    async def __aenter__(self) -> "LocalRolloutServer":
        try:
            await self._launch()
        except BaseException:
            await self._end()
            raise
        self._keeping = asyncio.create_task(self._keep())
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
        await self._end()

    async def _launch(self) -> None:
        self._starts += 1
        reserved = {
            "_OSMOSIS_ROLLOUT_PORT": str(self._plan.port),
            "_OSMOSIS_ROLLOUT_HOST": "127.0.0.1",
            "_OSMOSIS_ROLLOUT_ARTIFACT_ROOT": str(self._folder.trials),
            "_OSMOSIS_ROLLOUT_INSTANCE_ID": self.instance_id,
        }
        env = {**self._plan.full_env(), **reserved}
        child = await _start(self._plan, [self._plan.entrypoint], env, stderr=asyncio.subprocess.STDOUT)
        self._child = child
        self._reading = asyncio.create_task(self._read(child))
        write_json(
            self._folder.path / "server.json",
            {"pid": child.pid, "url": self.url, "instance_id": self.instance_id, "started_at": now()},
        )
        await self._until_healthy(child)

    async def _until_healthy(self, child: asyncio.subprocess.Process) -> None:
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + HEALTH_SECONDS
        async with httpx.AsyncClient(timeout=2.0, trust_env=False) as client:
            while True:
                with contextlib.suppress(httpx.HTTPError):
                    if (await client.get(f"{self.url}/health")).status_code == 200:
                        return
                if child.returncode is not None:
                    await self._read_to_end()
                    raise RolloutServerError(
                        f"The rollout server ended with status {child.returncode} before it was ready. "
                        f"Its last lines:\n{self.last_lines()}"
                    )
                if loop.time() > give_up_at:
                    raise RolloutServerError(
                        f"The rollout server did not answer GET /health within {HEALTH_SECONDS:.0f} s on port "
                        f"{self._plan.port}; it has to listen on _OSMOSIS_ROLLOUT_PORT. Its last lines:\n"
                        f"{self.last_lines()}"
                    )
                await asyncio.sleep(_POLL_SECONDS)

    async def _keep(self) -> None:
        """Start the server again when it ends."""
        falls = 0
        while self._child is not None:
            status = await self._child.wait()
            falls += 1
            await self._read_to_end()
            if falls > MAX_RESTARTS:
                self.failed.set_result(
                    RolloutServerError(
                        f"The rollout server ended {falls} times, last with status {status}. Its last lines:\n"
                        f"{self.last_lines()}"
                    )
                )
                return
            self._sink.line(
                "rollout",
                f"the rollout server ended with status {status}; it is started again",
                level="warning",
            )
            try:
                await self._launch()
            except RolloutServerError as error:
                # A rollout may have ended it before it was seen to be healthy: that counts as another fall.
                if self._child.returncode is None:
                    self.failed.set_result(error)
                    return

    async def _read(self, child: asyncio.subprocess.Process) -> None:
        assert child.stdout is not None
        while True:
            try:
                raw = await child.stdout.readline()
            except ValueError:  # a line longer than the limit; what was buffered of it is dropped
                continue
            if not raw:
                return
            line = raw.decode("utf-8", "replace").rstrip("\r\n")
            if line and not is_success_access_line(line):
                self._tail.append(line)
                self._sink.line("rollout", line)

    async def _read_to_end(self) -> None:
        if self._reading is not None:  # a grandchild could hold the pipe open
            await asyncio.wait({self._reading}, timeout=2.0)

    def last_lines(self) -> str:
        """The end of the server's output."""
        return "\n".join(list(self._tail)[-8:])

    async def _end(self) -> None:
        child = self._child
        if child is None:
            return
        if child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                child.terminate()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(child.wait(), _TERM_SECONDS)
        _kill(child)
        await child.wait()
        await self._read_to_end()
        if self._reading is not None:
            self._reading.cancel()


async def _start(
    plan: ServerPlan, arguments: "list[str] | tuple[str, ...]", env: Mapping[str, str], *, stderr: int
) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *command_line(os.getpid(), [str(plan.python), *arguments]),
        env=dict(env),
        cwd=plan.code,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=stderr,
        limit=_LONGEST_LINE,
        start_new_session=True,
    )


def _kill(child: asyncio.subprocess.Process) -> None:
    """End the process and everything in its group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)

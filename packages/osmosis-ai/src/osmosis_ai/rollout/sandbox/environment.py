"""Harbor's environment class over bubblewrap."""

import asyncio
import shlex
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import IO, Any, override

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities, EnvironmentResourceCapabilities
from harbor.models.task.config import NetworkPolicy
from harbor.models.trial.config import ResourceMode

from osmosis_ai.rollout.sandbox.bubblewrap import Mount, find_bubblewrap, prepare_root
from osmosis_ai.rollout.sandbox.dockerfile import DEFAULT_WORKDIR, NOT_COPIED, Copy, read_dockerfile
from osmosis_ai.rollout.sandbox.errors import SandboxError
from osmosis_ai.rollout.sandbox.limits import Limits
from osmosis_ai.rollout.sandbox.process import Finished, Session
from osmosis_ai.rollout.sandbox.python_runtime import RUNTIME_BIN, prepare_python
from osmosis_ai.rollout.sandbox.state import State
from osmosis_ai.rollout.sandbox.transfer import pack_file, pack_folder, unpack_file, unpack_folder

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_ENV = {"PATH": f"{_PATH}:{RUNTIME_BIN}", "HOME": "/root", "LANG": "C.UTF-8", "TMPDIR": "/tmp"}
_TRANSFER_TIMEOUT_S = 600


class BubblewrapEnvironment(BaseEnvironment):  # type: ignore[misc]
    """A sandbox on this machine: its programs, read-only, and a private file system, processes and network of its own.

    The task's Dockerfile is not built: its ``WORKDIR``, ``ENV`` and ``COPY`` are followed, in a system that has what the
    machine has. ``memory_mb`` (also from the task), ``processes`` and ``file_mb`` limit what a trial may use. ``readonly``
    names folders of the host that are visible at their own paths. ``state_dir`` holds the private files while a trial runs;
    the default is the folder for temporary files. See ``docs/sandbox.md`` for what the isolation is worth.
    """

    def __init__(
        self,
        *args: Any,
        memory_mb: int | None = None,
        processes: int = Limits.processes,
        file_mb: int = Limits.file_mb,
        readonly: list[str] | None = None,
        state_dir: str | None = None,
        **kwargs: Any,
    ) -> None:
        self._state_dir = state_dir
        self._readonly = [Path(path) for path in readonly or []]
        super().__init__(*args, **kwargs)
        asked = self._resource_limit_value("memory", auto_mode=ResourceMode.LIMIT)
        self._limits = Limits(
            memory_mb=memory_mb or asked or Limits.memory_mb, processes=processes, file_mb=file_mb
        )
        self._state: State | None = None
        self._visible: list[Mount] = []
        self._session: Session | None = None
        self._starting = asyncio.Lock()
        self._image = read_dockerfile(self.environment_dir / "Dockerfile")
        self._workdir = str(self.task_env_config.workdir or self._image.workdir or DEFAULT_WORKDIR)

    @staticmethod
    @override
    def type() -> str:
        return "bubblewrap"

    @property
    @override
    def capabilities(self) -> EnvironmentCapabilities:
        return EnvironmentCapabilities(disable_internet=True, dynamic_network_policy=True)

    @classmethod
    @override
    def resource_capabilities(cls) -> EnvironmentResourceCapabilities:
        return EnvironmentResourceCapabilities(memory_limit=True)

    @classmethod
    @override
    def preflight(cls) -> None:
        try:
            find_bubblewrap()
        except SandboxError as error:
            raise SystemExit(str(error)) from error

    @override
    def _validate_definition(self) -> None:
        find_bubblewrap()
        if (self.environment_dir / "docker-compose.yaml").exists():
            raise SandboxError(
                f"the task {self.environment_name} has a docker-compose.yaml; the sandbox runs one environment without "
                "services: use a Harbor environment with containers for it"
            )
        for path in self._readonly:
            if not path.is_absolute() or not path.exists():
                raise SandboxError(f"readonly: {path} is not the absolute path of something on this machine")

    @override
    async def start(self, force_build: bool) -> None:
        self._state = await self._new_state()
        self._visible = await asyncio.to_thread(self._prepare, self._state.root)
        targets = [str(PurePosixPath(target)) for target in self._mount_targets()]
        folders = [
            self._workdir,
            "/logs/agent",
            "/logs/verifier",
            "/logs/artifacts",
            "/tests",
            "/solution",
            *targets,
        ]
        made = await self._run(["mkdir", "-p", *dict.fromkeys(folders)], cwd="/")
        if made.exit_code != 0:
            raise SandboxError(f"the sandbox cannot make its folders: {made.stderr.strip()}")
        for copy in self._image.copies:
            await self._copy(copy)
        if not self._image.copies and self.environment_dir.is_dir():
            beside = [path.name for path in self.environment_dir.iterdir() if path.name not in NOT_COPIED]
            await self._copy(Copy(tuple(beside), f"{self._workdir}/"), keep_folders=True)

    @override
    async def stop(self, delete: bool) -> None:
        await self._end_session()
        state, self._state = self._state, None
        if state is not None:
            await asyncio.to_thread(state.remove if delete else state.keep)

    @override
    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        wanted = self._resolve_user(user)
        if wanted not in (None, "root", 0, "0"):
            raise SandboxError(
                f"the sandbox has one user, 'root' (without privileges), and cannot run commands as {wanted!r}; leave "
                "'user' out of the task"
            )
        done = await self._run(
            ["bash", "-c", command],
            cwd=cwd or self._workdir,
            env=self._merge_env(env),
            # Harbor means no limit by 0.
            timeout_sec=timeout_sec or None,
            on_output=self._output_callback(),
        )
        return ExecResult(stdout=done.stdout, stderr=done.stderr, return_code=done.exit_code)

    @override
    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        target = PurePosixPath(target_path)
        await self._unpack_inside(
            lambda archive: pack_file(Path(source_path), target.name, archive), str(target.parent)
        )

    @override
    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        await self._unpack_inside(lambda archive: pack_folder(Path(source_dir), archive), target_dir)

    @override
    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        source = PurePosixPath(source_path)
        # Following links is right here: whatever it leads to is inside.
        tar = [
            "tar",
            "--dereference",
            "--no-recursion",
            "-cf",
            "-",
            "-C",
            str(source.parent),
            "--",
            source.name,
        ]
        with tempfile.TemporaryFile() as archive:
            await self._pack_inside(tar, source_path, archive)
            if not await asyncio.to_thread(unpack_file, archive, Path(target_path)):
                raise SandboxError(f"{source_path} in the sandbox is not a regular file")

    @override
    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        tar = ["tar", "--hard-dereference", "-cf", "-", "-C", source_dir, "."]
        with tempfile.TemporaryFile() as archive:
            await self._pack_inside(tar, source_dir, archive)
            try:
                await asyncio.to_thread(unpack_folder, archive, Path(target_dir))
            except tarfile.TarError as error:
                raise SandboxError(f"{source_dir} in the sandbox cannot be copied: {error}") from error

    @override
    async def _apply_network_policy(self, network_policy: NetworkPolicy) -> None:
        # The network belongs to a sandbox from its start on; the next command starts one with the other network.
        await self._end_session()

    async def _new_state(self) -> State:
        making = asyncio.create_task(asyncio.to_thread(State.create, self._state_dir))
        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError:
            (await making).remove()
            raise

    def _prepare(self, root: Path) -> list[Mount]:
        prepare_root(root)
        visible = [*prepare_python(root), *((path, str(path), False) for path in self._readonly)]
        logs = self.trial_paths.trial_dir.resolve()
        for mount in self._mounts:
            source = Path(mount["source"]).resolve() if mount.get("source") else None
            if mount.get("type") != "bind" or source is None:
                raise SandboxError(f"the sandbox can mount folders of the host only, not {dict(mount)}")
            # The trial's own folders are copied out instead: the host must not follow links that were made inside.
            if not source.is_relative_to(logs):
                visible.append((source, mount["target"], not mount.get("read_only", False)))
        return visible

    async def _copy(self, copy: Copy, *, keep_folders: bool = False) -> None:
        """Follow a ``COPY`` instruction. Of a folder it copies the content; ``keep_folders`` copies the folder itself."""
        root = self.environment_dir.resolve()
        for pattern in copy.sources:
            found = sorted(root.glob(pattern.lstrip("/") or ".")) if pattern.strip("./") else [root]
            if not found:
                raise SandboxError(f"the task's Dockerfile copies {pattern!r}, which is not in {root}")
            for path in found:
                if not path.resolve().is_relative_to(root):
                    raise SandboxError(f"the task's Dockerfile copies {pattern!r}, which leads out of {root}")
                if path.is_dir():
                    name = path.name if keep_folders else ""
                    await self.upload_dir(path, f"{copy.target.rstrip('/')}/{name}")
                elif copy.target.endswith("/") or await self.is_dir(copy.target):
                    await self.upload_file(path, f"{copy.target.rstrip('/')}/{path.name}")
                else:
                    await self.upload_file(path, copy.target)

    async def _run(
        self,
        argv: list[str],
        *,
        cwd: str,
        env: dict[str, str] | None = None,
        timeout_sec: float | None = None,
        **streams: Any,
    ) -> Finished:
        session = await self._running()
        return await session.run(
            argv, cwd=cwd, env={**_ENV, **self._image.env, **(env or {})}, timeout_sec=timeout_sec, **streams
        )

    async def _running(self) -> Session:
        async with self._starting:
            if self._state is None:
                raise SandboxError("the sandbox is not started")
            if self._session is not None and not self._session.alive:
                await self._session.close()
                self._session = None
            if self._session is None:
                session = Session(self._limits)
                await session.start(self._state.root, self._visible, network=self._network_is_public)
                self._session = session
            return self._session

    async def _end_session(self) -> None:
        async with self._starting:
            session, self._session = self._session, None
            if session is not None:
                await session.close()

    async def _unpack_inside(self, pack: Callable[[IO[bytes]], None], target_dir: str) -> None:
        with tempfile.TemporaryFile() as archive:
            await asyncio.to_thread(pack, archive)
            archive.seek(0)
            target = shlex.quote(target_dir)
            done = await self._run(
                ["sh", "-c", f"mkdir -p -- {target} && exec tar -xf - --no-same-owner -C {target}"],
                cwd="/",
                timeout_sec=_TRANSFER_TIMEOUT_S,
                stdin=archive.fileno(),
            )
        if done.exit_code != 0:
            raise SandboxError(f"cannot copy files to {target_dir} in the sandbox: {done.stderr.strip()}")

    async def _pack_inside(self, tar: list[str], source: str, archive: IO[bytes]) -> None:
        done = await self._run(tar, cwd="/", timeout_sec=_TRANSFER_TIMEOUT_S, stdout=archive.fileno())
        # 1: a file changed while it was read.
        if done.exit_code not in (0, 1):
            raise SandboxError(f"cannot copy {source} from the sandbox: {done.stderr.strip()}")
        archive.seek(0)

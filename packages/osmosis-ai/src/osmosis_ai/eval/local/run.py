"""Runs an evaluation on this machine: environment, rollout server, runner, results."""

import asyncio
import contextlib
import hashlib
import signal
import subprocess
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from osmosis_ai.datasets.rows import DatasetRow, RowReader
from osmosis_ai.environments.build import Builder, BuildOptions, environment_key, python_of, uv_env
from osmosis_ai.environments.project import read_project
from osmosis_ai.environments.wheel import pack_installed
from osmosis_ai.errors import OsmosisError
from osmosis_ai.eval.local.folder import RunFolder
from osmosis_ai.eval.local.outputs import complete_outputs, write_outputs
from osmosis_ai.eval.local.server import LocalRolloutServer, ServerPlan, check_entrypoint
from osmosis_ai.eval.local.sink import FolderSink
from osmosis_ai.eval.policy.base import EvalPolicy
from osmosis_ai.eval.policy.hosted import HostedPolicy
from osmosis_ai.eval.policy.provider import ProviderPolicy
from osmosis_ai.eval.runner import EvalRunner
from osmosis_ai.processes.ports import free_port
from osmosis_ai.worker.spec import EvalConfig

_SKIPPED = {".git", ".venv", "venv", "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache"}


class SelectedRows:
    """Some rows of a dataset file, numbered from 0 in the order of the selection."""

    def __init__(self, reader: RowReader, indices: Sequence[int]) -> None:
        self._reader = reader
        self._indices = indices

    def __len__(self) -> int:
        return len(self._indices)

    def read(self, indices: list[int]) -> list[DatasetRow]:
        """The rows at these positions of the selection."""
        found = self._reader.read([self._indices[index] for index in indices])
        return [replace(row, row_index=index) for row, index in zip(found, indices, strict=True)]


@dataclass(frozen=True, slots=True)
class LocalEvaluation:
    """What to evaluate.

    ``rows_path`` is a Parquet file of rows, ``selected`` the rows of it to take. ``model_url`` is the base address of an
    OpenAI-compatible server (with ``model_key``); without it the model is called through LiteLLM. ``env`` and ``secrets`` are
    variables of the rollout; secrets are also what LiteLLM looks for.
    """

    folder: RunFolder
    code: Path
    entrypoint: str
    rows_path: Path
    selected: list[int]
    config: EvalConfig
    model: str
    model_url: str | None = None
    model_key: str = field(default="none", repr=False)
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    environments: Path = field(default_factory=lambda: Path.home() / ".cache" / "osmosis" / "environments")
    port: int | None = None
    max_in_flight: int | None = None


@dataclass(frozen=True, slots=True)
class LocalOutcome:
    """How it ended: ``status`` is ``finished`` or ``stopped``, ``summary`` as :mod:`osmosis_ai.eval.results` makes it."""

    status: str
    summary: dict[str, Any]
    resumed: int


Say = Callable[[str], None]
Progress = Callable[[int, int], None]


def source_digest(folder: Path) -> str:
    """SHA-256 of the files of a rollout, without environments and caches."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        inner = path.relative_to(folder)
        if path.is_file() and not _SKIPPED.intersection(inner.parts) and path.suffix != ".pyc":
            content = path.read_bytes()
            digest.update(f"{inner.as_posix()}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def run_local(
    plan: LocalEvaluation,
    *,
    say: Say = lambda _line: None,
    on_line: Say = lambda _line: None,
    progress: Progress = lambda _done, _total: None,
) -> LocalOutcome:
    """Evaluate; the caller holds the folder's lock. The first Ctrl-C ends it gracefully, the second at once.

    Raises:
        OsmosisError: it cannot be run. What is finished stays, and a later call goes on from there.
    """
    if (summary := complete_outputs(plan.folder)) is not None:
        return LocalOutcome("finished", summary, len(plan.folder.attempts()))
    python = make_environment(plan, say)
    return asyncio.run(_evaluate(plan, python, say, on_line, progress))


def make_environment(plan: LocalEvaluation, say: Say) -> Path:
    """The interpreter of the rollout's environment, which is made if need be.

    Raises:
        EnvironmentFailedError: the project file asks for what cannot be had.
    """
    project = read_project(plan.code)
    wheel = pack_installed(plan.environments / "sdk")
    options = BuildOptions()
    target = plan.environments / environment_key(project, wheel, options)
    Builder(wheel, options, _run, say).ensure(target, project)
    return python_of(target)


def _run(command: Sequence[str], cwd: Path) -> tuple[int, str]:
    done = subprocess.run(
        list(command),
        cwd=cwd,
        env=uv_env(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    return done.returncode, done.stdout.decode("utf-8", "replace").strip()


async def _evaluate(
    plan: LocalEvaluation, python: Path, say: Say, on_line: Say, progress: Progress
) -> LocalOutcome:
    folder = plan.folder
    earlier = {(attempt["row_index"], attempt["run_index"]) for attempt in folder.attempts()}
    hidden = [*plan.secrets.values(), plan.model_key]
    sink = FolderSink(folder, secrets=hidden, on_progress=progress, on_line=on_line)
    start = ServerPlan(
        python, plan.code, plan.entrypoint, {**plan.env, **plan.secrets}, plan.port or free_port()
    )
    status = "stopped"
    try:
        for warning in await check_entrypoint(start):
            say(warning)
        with _graceful_interrupt(sink, say):
            async with LocalRolloutServer(start, folder, sink) as server:
                status = await _until_failed(_run_rows(plan, server, sink), server)
    except OsmosisError as error:
        sink.log(error.message, level="error")
        raise
    finally:
        sink.close()
        summary = write_outputs(folder, status=status, resumed=earlier)
    folder.clean()
    return LocalOutcome(status, summary, len(earlier))


async def _run_rows(plan: LocalEvaluation, server: LocalRolloutServer, sink: FolderSink) -> str:
    policy = _policy(plan)
    reader = RowReader(plan.rows_path)
    rows = SelectedRows(reader, plan.selected)
    settings = plan.config.evaluation.model_copy(update={"limit": max(1, len(rows))})
    try:
        runner = EvalRunner(
            rows=rows,
            config=plan.config.model_copy(update={"evaluation": settings}),
            policy=policy,
            sink=sink,
            rollout_url=server.url,
            instance_id=server.instance_id,
            artifact_root=plan.folder.trials,
            work_dir=plan.folder.state,
            max_in_flight=plan.max_in_flight,
        )
        return (await runner.run()).status
    finally:
        reader.close()
        await policy.aclose()


def _policy(plan: LocalEvaluation) -> EvalPolicy:
    overrides = plan.config.advanced.policy
    if plan.model_url is None:
        return ProviderPolicy(plan.model, plan.secrets, overrides=overrides)
    return HostedPolicy(
        plan.model_url, plan.model_key, plan.model, overrides=overrides, seed=plan.config.advanced.seed
    )


async def _until_failed(work: Coroutine[Any, Any, str], server: LocalRolloutServer) -> str:
    """The status of the work; the server's failure ends it."""
    working = asyncio.create_task(work)
    try:
        waiting: set[asyncio.Future[Any]] = {working, server.failed}
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise server.failed.result()
        return working.result()
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


@contextlib.contextmanager
def _graceful_interrupt(sink: FolderSink, say: Say) -> Iterator[None]:
    """Inside the block the first Ctrl-C asks for a graceful end; the second one is an ordinary interruption."""
    loop = asyncio.get_running_loop()
    before = signal.getsignal(signal.SIGINT)

    def restore() -> None:
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, before)

    def interrupted() -> None:
        say("Stopping: attempts in hand may finish. Press Ctrl-C again to stop at once.")
        sink.stop_requested.set()
        restore()

    loop.add_signal_handler(signal.SIGINT, interrupted)
    try:
        yield
    finally:
        restore()

"""A queue that speaks Harbor's interface without running anything, a project with a workflow, and task folders."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from osmosis_ai.rollout import ExecutionRequest, ExecutionResult
from osmosis_ai.rollout.backend.harbor import HarborBackend

START = datetime(2026, 1, 1, tzinfo=UTC)

PROJECT = """
from osmosis_ai.rollout import AgentWorkflow, AgentWorkflowConfig, AgentWorkflowOutput, Grader, GraderConfig


class Solver(AgentWorkflow):
    async def run(self, ctx):
        return AgentWorkflowOutput(messages=[*ctx.prompt, {"role": "assistant", "content": "42"}])


class Exact(Grader):
    async def grade(self, ctx):
        ctx.set_reward(float(ctx.sample.messages[-1]["content"] == ctx.label))
"""


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with the package ``harbor_agent``; it is not importable."""
    root = tmp_path_factory.mktemp("project")
    (root / "pyproject.toml").write_text(
        '[project]\nname = "harbor-agent"\nversion = "1.0"\ndependencies = []\n'
    )
    (root / "harbor_agent").mkdir()
    (root / "harbor_agent" / "__init__.py").write_text(PROJECT)
    return root


@pytest.fixture
def importable(project: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The project's package, imported."""
    monkeypatch.syspath_prepend(str(project))
    import harbor_agent

    yield harbor_agent
    sys.modules.pop("harbor_agent", None)


@pytest.fixture(scope="session")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def cache(bundles: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bundles go here, never to the user's cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(bundles))


@pytest.fixture
def task(tmp_path: Path) -> Path:
    """A task folder with everything but tests."""
    folder = tmp_path / "tasks" / "sum"
    (folder / "environment").mkdir(parents=True)
    (folder / "instruction.md").write_text("Add the numbers.\n")
    (folder / "task.toml").write_text('schema_version = "1.3"\n')
    (folder / "environment" / "Dockerfile").write_text("FROM debian:12-slim\nWORKDIR /app\n")
    return folder


def span(start: float, seconds: float | None = 1.0) -> SimpleNamespace:
    """A phase that began ``start`` seconds into the trial."""
    began = START + timedelta(seconds=start)
    return SimpleNamespace(
        started_at=began, finished_at=None if seconds is None else began + timedelta(seconds=seconds)
    )


def exception(kind: str = "RuntimeError", message: str = "broken", at: float = 3.0) -> SimpleNamespace:
    return SimpleNamespace(
        exception_type=kind, exception_message=message, occurred_at=START + timedelta(seconds=at)
    )


def trial_result(**given: Any) -> SimpleNamespace:
    """A trial that went through every phase: agent in seconds 2 to 4, verifier from second 5."""
    parts: dict[str, Any] = {
        "started_at": START,
        "finished_at": START + timedelta(seconds=6.125),
        "environment_setup": span(0),
        "agent_setup": span(1),
        "agent_execution": span(2, 2),
        "verifier": span(5),
        "exception_info": None,
        "agent_result": SimpleNamespace(metadata={"status": "success", "output": output()}),
        "verifier_result": SimpleNamespace(rewards={"reward": 1.0}),
    }
    return SimpleNamespace(**{**parts, **given})


def output(text: str = "42") -> dict[str, Any]:
    return {"messages": [{"role": "assistant", "content": text}], "metrics": {}, "info": {}}


class DuckQueue:
    """An orchestrator: ``script`` plays the trial and may fire the hooks; by default the whole of them."""

    def __init__(self) -> None:
        self.hooks: dict[str, list[Callable[[Any], Awaitable[None]]]] = {}
        self.configs: list[Any] = []
        self.result: Any = trial_result()
        self.script: Callable[[Any], Awaitable[Any]] = self.play
        self.submitted = asyncio.Event()

    def add_hook(self, event: Any, callback: Callable[[Any], Awaitable[None]]) -> None:
        self.hooks.setdefault(event.value, []).append(callback)

    async def submit(self, config: Any) -> Any:
        self.configs.append(config)
        self.submitted.set()
        return await self.script(config)

    async def fire(self, event: str, config: Any, result: Any = None) -> None:
        given = self.result if result is None else result
        for callback in self.hooks[event]:
            await callback(SimpleNamespace(config=config, result=given))

    async def play(self, config: Any) -> Any:
        await self.fire("start", config)
        if self.result.verifier is not None:
            await self.fire("verification-start", config)
        await self.fire("end", config)
        return self.result


@dataclass
class Reports:
    """What the controller heard; the first ``refuse`` completions fail to be delivered."""

    refuse: int = 0
    heard: list[tuple[str, ExecutionResult]] = field(default_factory=list)

    async def completion(self, result: ExecutionResult) -> None:
        self.heard.append(("completion", result))
        if self.refuse > 0:
            self.refuse -= 1
            raise ConnectionError("the controller is away")

    async def grader(self, result: ExecutionResult) -> None:
        self.heard.append(("grader", result))

    def of(self, channel: str) -> list[ExecutionResult]:
        return [result for name, result in self.heard if name == channel]


@dataclass
class Bench:
    """A backend on a :class:`DuckQueue`, and its reports."""

    queue: DuckQueue
    backend: HarborBackend
    reports: Reports
    root: Path

    async def run(self, rollout_id: str = "r1", **request: Any) -> None:
        given = {"id": rollout_id, "prompt": [{"role": "user", "content": "6 x 7"}], "label": "42", **request}
        await self.backend.execute(ExecutionRequest(**given), self.reports.completion, self.reports.grader)

    def trial_dir(self, rollout_id: str = "r1") -> Path:
        return self.backend.trials_dir / f"trial-{rollout_id}"

    def leave(self, path: str, text: str, rollout_id: str = "r1") -> Path:
        """A file that the trial leaves."""
        file = self.trial_dir(rollout_id) / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def kept(self, rollout_id: str = "r1") -> dict[str, str]:
        """What is in the rollout's folder afterwards."""
        folder = self.root / rollout_id
        return {
            path.relative_to(folder).as_posix(): path.read_text()
            for path in folder.rglob("*")
            if path.is_file()
        }


@pytest.fixture
def bench(tmp_path: Path, task: Path, project: Path, artifact_root: Path) -> Callable[..., Bench]:
    """``bench(**arguments of the backend)``; the agent is the project's workflow."""

    def make(**arguments: Any) -> Bench:
        queue = DuckQueue()
        given: dict[str, Any] = {
            "orchestrator": queue,
            "tasks_dir": task,
            "agent": "harbor_agent:Solver",
            "trials_dir": tmp_path / "trials",
        }
        given |= arguments
        given.setdefault("code_dir", project)
        return Bench(queue, HarborBackend(**given), Reports(), artifact_root)

    return make


@pytest.fixture
def trial() -> SimpleNamespace:
    """Makers of trial results: ``trial.result(...)``, ``trial.exception(...)``, ``trial.span(...)``, ``trial.output(...)``."""
    return SimpleNamespace(result=trial_result, exception=exception, span=span, output=output)

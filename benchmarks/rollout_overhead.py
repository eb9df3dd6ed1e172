"""What the SDK itself costs: importing it, and running workflow and grader through a `LocalBackend`."""

from __future__ import annotations

import asyncio
import copy
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from uuid import uuid4

from benchmarks.result import CpuClock, Result, median_of_rounds
from benchmarks.rollout_parts.trivial_osmosis_server import AlwaysRight, Repeats
from osmosis_ai.rollout import (
    AgentWorkflowConfig,
    AgentWorkflowContext,
    ConcurrencyConfig,
    ExecutionRequest,
    ExecutionResult,
    GraderContext,
    LocalBackend,
    RolloutSample,
)

IN_FLIGHT = 16
_PROMPT = [{"role": "user", "content": "What is 6 times 7?"}]
_CONFIG = AgentWorkflowConfig(name="repeats", concurrency=ConcurrencyConfig(max_concurrent=IN_FLIGHT))


def run(rollouts: int = 500, rounds: int = 5) -> list[Result]:
    """CPU-seconds of one import in a fresh interpreter, and rollouts per CPU-second inside this process."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        ours, hand = median_of_rounds(
            [lambda: _rate(_ours(root), rollouts), lambda: _rate(_by_hand(root), rollouts)], rounds
        )
    package = _import_seconds("import osmosis_ai.rollout", rounds)
    names = _import_seconds("from osmosis_ai.rollout import *", rounds)
    bare = _import_seconds("import asyncio, pydantic\nclass M(pydantic.BaseModel): x: int", rounds)
    return [
        Result("LocalBackend", ours, "rollouts/CPU-s", "semaphore, timeouts, folder by hand", ours / hand),
        Result(
            "import osmosis_ai.rollout", package, "CPU-s", "asyncio and one pydantic model", bare / package
        ),
        Result("the same, with every name", names, "CPU-s", "asyncio and one pydantic model", bare / names),
    ]


def _rate(run_one: Callable[[str], Awaitable[float | None]], rollouts: int) -> float:
    async def all_of_them() -> None:
        for _ in range(rollouts // IN_FLIGHT):
            rewards = await asyncio.gather(*(run_one(uuid4().hex) for _ in range(IN_FLIGHT)))
            if set(rewards) != {1.0}:
                raise RuntimeError(f"rollouts got rewards {rewards}, expected 1.0")

    clock = CpuClock()
    with clock.running():
        asyncio.run(all_of_them())
    return rollouts // IN_FLIGHT * IN_FLIGHT / clock.seconds


def _ours(root: Path) -> Callable[[str], Awaitable[float | None]]:
    backend = LocalBackend(workflow=Repeats, workflow_config=_CONFIG, grader=AlwaysRight)
    backend.artifact_root = root

    async def run_one(rollout_id: str) -> float | None:
        results: list[ExecutionResult] = []

        async def keep(result: ExecutionResult) -> None:
            results.append(result)

        request = ExecutionRequest(
            id=rollout_id, prompt=_PROMPT, label="42", agent_timeout_sec=450, grader_timeout_sec=150
        )
        await backend.execute(request, keep, keep)
        sample = results[-1].sample
        return None if sample is None else sample.reward

    return run_one


def _by_hand(root: Path) -> Callable[[str], Awaitable[float | None]]:
    gate = asyncio.Semaphore(IN_FLIGHT)

    async def run_one(rollout_id: str) -> float | None:
        async with gate:
            folder = root / rollout_id / "artifacts"
            folder.mkdir(parents=True)
            config = copy.deepcopy(_CONFIG)
            workflow = Repeats(config)
            ctx = AgentWorkflowContext(list(_PROMPT), config, artifacts_dir=folder)
            async with asyncio.timeout(450):
                sample = RolloutSample(messages=await workflow.run(ctx), label="42")
            async with asyncio.timeout(150):
                await AlwaysRight(None).grade(GraderContext("42", sample, artifacts_dir=folder))
            return sample.reward

    return run_one


def _import_seconds(statement: str, rounds: int) -> float:
    code = f"import time; start = time.process_time()\n{statement}\nprint(time.process_time() - start)"
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}

    def once() -> float:
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
        )
        return float(done.stdout)

    once()  # compiles what is not compiled yet
    return statistics.median(once() for _ in range(rounds))

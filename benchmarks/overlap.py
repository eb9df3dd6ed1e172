"""Collecting the next step's rollouts while a step learns ([advanced] max_staleness = 1), against one after the other.

The whole training loop with journal and saved states; the agents are coroutines of this process that ask twice and wait
between the two for their tool. Wall-clock seconds: waiting costs no CPU.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import multiply_workload as workload
from benchmarks.result import Result, median_of_rounds
from osmosis_ai.datasets import DatasetRow
from osmosis_ai.rollout.controller.result import RolloutResult
from osmosis_ai.rollout.driver import RolloutRunRequest
from osmosis_trainer.collect.rollouts import RolloutRunner
from osmosis_trainer.collect.stop import StopSignal
from osmosis_trainer.gateway.policy_gateway import PolicyGateway
from osmosis_trainer.parts import Parts
from osmosis_trainer.report import Report
from osmosis_trainer.sample_files import SampleFiles
from osmosis_trainer.settings import RunSettings
from osmosis_trainer.tiny.chats import strands_task
from osmosis_trainer.train import train

SIZE = 8


@dataclass
class StepSeconds:
    """Stands where the platform is and keeps what each step took."""

    seconds: list[float] = field(default_factory=list)

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        if "perf/step_seconds" in values:
            self.seconds.append(values["perf/step_seconds"])

    def log(self, *_: Any, **__: Any) -> None:
        return

    progress = sample = log

    async def checkpoint(self, **_: Any) -> None:
        return

    async def put_blob(self, content: bytes) -> str:
        return str(len(content))

    async def flush(self) -> None:
        return


async def rollout(
    gateway: PolicyGateway, tools: list[dict[str, Any]], latency_s: float, request: RolloutRunRequest
) -> RolloutResult:
    """Ask, wait for the tool, ask again. The reward is arbitrary, but differs within a group."""
    messages = list(request.messages)
    for turn in range(2):
        if turn:
            await asyncio.sleep(latency_s)
            messages.append({"role": "user", "content": "42. Please go on."})
        body = {"messages": messages, "tools": tools, "tool_choice": "none", "max_tokens": 32}
        answer = await gateway.complete(request.rollout_id, body)
        messages.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"] or ""})
    return RolloutResult(request.rollout_id, "success", float(len(messages[-1]["content"])))


class OneRollout:
    """The controller of a run without a rollout server."""

    def __init__(self, gateway: PolicyGateway, tools: list[dict[str, Any]], latency_s: float) -> None:
        self.run = partial(rollout, gateway, tools, latency_s)


async def seconds_per_step(staleness: int, latency_s: float, groups: int, steps: int) -> float:
    """Median over the steps that have a neighbour on both sides."""
    settings = RunSettings.from_config(
        {
            "training": {"rollout_batch_size": groups, "n_samples_per_prompt": SIZE},
            "checkpoints": {"checkpoint_save_freq": 1000},
            "advanced": {
                "max_steps": steps + 2,
                "validation_rows": 0,
                "refill_limit": 0,
                "mask_truncated": False,
                "max_staleness": staleness,
            },
        }
    )
    engine = workload.engine(slots=groups * SIZE)
    gateway = PolicyGateway(engine)
    rng = random.Random(0)
    tasks = [strands_task(rng) for _ in range(groups * 4)]
    rows = [DatasetRow(i, task.messages) for i, task in enumerate(tasks)]
    controller = OneRollout(gateway, tasks[0].tools, latency_s)
    runner = RolloutRunner(gateway, rows.__getitem__, settings)
    events = StepSeconds()
    try:
        with tempfile.TemporaryDirectory() as folder:
            await train(
                Parts(
                    settings,
                    engine,
                    len(rows),
                    partial(runner.run, controller),
                    Report(events, gateway.view, SampleFiles(Path(folder), wait_s=0)),
                    StopSignal(),
                    Path(folder),
                    concurrency=groups * SIZE,
                )
            )
    finally:
        await engine.close()
    return statistics.median(events.seconds[1:-1])


def run(groups: int = 8, steps: int = 4, latency_s: float = 2.0, rounds: int = 2) -> list[Result]:
    """Seconds of a step with and without the overlap; with a tool that takes `latency_s` seconds, and with one that takes none."""
    results = []
    for wait, words in ((latency_s, f"tool of {latency_s:g} s"), (0.0, "no waiting")):
        sides = [
            partial(
                lambda staleness, wait: asyncio.run(seconds_per_step(staleness, wait, groups, steps)), s, wait
            )
            for s in (0, 1)
        ]
        plain, ahead = median_of_rounds(sides, rounds)
        name = f"step with rollouts ahead, {words}"
        results.append(Result(name, ahead, "s", "the same run with max_staleness = 0", plain / ahead))
    return results

"""Rollouts per second through controller, rollout server and gateway, against the same work written by hand."""

from __future__ import annotations

import asyncio
import random
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from transformers import AutoTokenizer

from benchmarks.result import Result
from benchmarks.rollout_parts.hand_controller import HandController
from benchmarks.rollout_parts.policy import ANSWER, ScriptedEngine
from benchmarks.rollout_parts.process import cpu_seconds, running
from osmosis_ai.rollout.controller import RolloutController
from osmosis_ai.rollout.driver import RolloutRunRequest
from osmosis_trainer.gateway import PolicyGateway
from osmosis_trainer.tiny import TINY_MULTIPLY, model_path
from osmosis_trainer.tiny.chats import MultiplyTask, any_task

IN_FLIGHT = 16

RunOne = Callable[[MultiplyTask], Awaitable[float]]


@dataclass(slots=True)
class _Side:
    """One way to run a rollout, and what its rounds gave."""

    run_one: RunOne
    server_url: str
    per_second: list[float] = field(default_factory=list)
    per_cpu_second: list[float] = field(default_factory=list)


def run(rollouts: int = 64, rounds: int = 5) -> list[Result]:
    """One model call, completion and grader callback each, `IN_FLIGHT` at a time. CPU time is that of both processes."""
    ours, hand = asyncio.run(_both(rollouts, rounds))
    results = []
    for name, unit, rates in (
        ("rollouts, one turn, scripted policy", "rollouts/s", (ours.per_second, hand.per_second)),
        ("the same by CPU time", "rollouts/CPU-s", (ours.per_cpu_second, hand.per_cpu_second)),
    ):
        value, other = map(statistics.median, rates)
        results.append(Result(name, value, unit, "by hand: FastAPI, asyncio, httpx", value / other))
    return results


async def _both(rollouts: int, rounds: int) -> tuple[_Side, _Side]:
    engine = ScriptedEngine(AutoTokenizer.from_pretrained(model_path(TINY_MULTIPLY)))
    gateway = PolicyGateway(engine)
    rng = random.Random(0)
    tasks = [any_task(rng) for _ in range(rollouts)]
    with (
        tempfile.TemporaryDirectory() as folder,
        running("benchmarks.rollout_parts.osmosis_server", Path(folder) / "osmosis") as our_url,
        running("benchmarks.rollout_parts.hand_server", Path(folder) / "hand") as hand_url,
    ):
        hand = HandController(hand_url, engine)
        async with RolloutController(rollout_url=our_url, chat=gateway) as controller, hand.listening():
            ours = _Side(lambda task: _ours(controller, gateway, task), our_url)
            theirs = _Side(lambda task: hand.run(task.messages, task.label), hand_url)
            for side in (ours, theirs):
                await _batch(side.run_one, tasks[: 2 * IN_FLIGHT])
            for _ in range(rounds):
                for side in (ours, theirs):
                    await _measure(side, tasks)
    return ours, theirs


async def _measure(side: _Side, tasks: list[MultiplyTask]) -> None:
    before = time.process_time() + await asyncio.to_thread(cpu_seconds, side.server_url)
    start = time.perf_counter()
    await _batch(side.run_one, tasks)
    side.per_second.append(len(tasks) / (time.perf_counter() - start))
    spent = time.process_time() + await asyncio.to_thread(cpu_seconds, side.server_url) - before
    side.per_cpu_second.append(len(tasks) / spent)


async def _batch(run_one: RunOne, tasks: list[MultiplyTask]) -> None:
    gate = asyncio.Semaphore(IN_FLIGHT)

    async def gated(task: MultiplyTask) -> float:
        async with gate:
            return await run_one(task)

    rewards = await asyncio.gather(*map(gated, tasks))
    right = [float(task.label in ANSWER) for task in tasks]
    if rewards != right:
        raise RuntimeError(f"rollouts got rewards {rewards}, expected {right}")


async def _ours(controller: RolloutController, gateway: PolicyGateway, task: MultiplyTask) -> float:
    rollout_id = uuid4().hex
    gateway.open(
        rollout_id, seed=0, temperature=1.0, top_p=1.0, max_prompt_tokens=1024, max_response_tokens=1024
    )
    result = await controller.run(RolloutRunRequest(task.messages, label=task.label, rollout_id=rollout_id))
    trace = gateway.close(rollout_id)
    if result.reward is None or len(trace.calls) != 1:
        raise RuntimeError(
            f"rollout {rollout_id} is {result.status}: {result.error_type} {result.error_message}"
        )
    return result.reward

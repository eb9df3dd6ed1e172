"""What a rollout server spends on a rollout that does nothing, both callbacks included, against plain FastAPI."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
from pathlib import Path

from benchmarks.result import Result
from benchmarks.rollout_parts.callback_sink import CallbackSink
from benchmarks.rollout_parts.process import cpu_seconds, running

IN_FLIGHT = 16


def run(rollouts: int = 500, rounds: int = 5) -> list[Result]:
    """Rollouts per CPU-second of the server's process: how many one core can serve."""
    ours, hand = asyncio.run(_both(rollouts, rounds))
    return [
        Result(
            "trivial rollouts, server alone",
            ours,
            "rollouts/CPU-s",
            "by hand: FastAPI, asyncio, httpx",
            ours / hand,
        )
    ]


async def _both(rollouts: int, rounds: int) -> list[float]:
    with (
        tempfile.TemporaryDirectory() as folder,
        running("benchmarks.rollout_parts.trivial_osmosis_server", Path(folder) / "osmosis") as our_url,
        running("benchmarks.rollout_parts.trivial_hand_server", Path(folder) / "hand") as hand_url,
    ):
        rates: list[list[float]] = [[], []]
        for _ in range(rounds + 1):  # the first one warms up
            for url, found in zip((our_url, hand_url), rates, strict=True):
                found.append(await _rate(url, rollouts))
    return [statistics.median(found[1:]) for found in rates]


async def _rate(url: str, rollouts: int) -> float:
    before = await asyncio.to_thread(cpu_seconds, url)
    sink = CallbackSink(url)
    async with sink.listening():
        await sink.run(rollouts, in_flight=IN_FLIGHT)
    return rollouts / (await asyncio.to_thread(cpu_seconds, url) - before)

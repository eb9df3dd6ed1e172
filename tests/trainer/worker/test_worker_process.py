"""The worker as the platform starts it: killed, told to end, orphaned."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import pytest

pytestmark = pytest.mark.slow

ADAPTER = "checkpoints/step-3/adapter_model.safetensors"


async def ended(process: asyncio.subprocess.Process) -> int:
    async with asyncio.timeout(600):
        return await process.wait()


async def test_sigkill_loses_and_repeats_nothing(make_run: Any, platform: Any, rollout_server: Any) -> None:
    one = {"max_concurrent_rollouts": 1}
    calm = make_run("calm", advanced=one)
    assert await ended(await calm.start()) == 0
    platform.events.clear()
    rough, finished = make_run("rough", advanced=one), {}
    for step in (1, 2):
        process = await rough.start()
        await platform.until(lambda p, step=step: step in p.values("train/loss"))
        await rough.journaled(6)
        process.kill()
        assert await ended(process) == -signal.SIGKILL
        finished |= rough.attempts()
    assert await ended(await rough.start()) == 0
    started = rollout_server.started()
    assert all(started.count(rollout_id) == 1 for rollout_id in finished.values())
    assert (rough.folder / ADAPTER).read_bytes() == (calm.folder / ADAPTER).read_bytes()


async def test_sigterm_stops_with_a_checkpoint(make_run: Any, platform: Any) -> None:
    run = make_run(advanced={"max_steps": 50})
    process = await run.start()
    await platform.until(lambda p: 1 in p.values("train/loss"))
    process.terminate()
    assert await ended(process) == 3
    assert platform.of("checkpoint")[-1]["final"] is True


async def test_the_worker_ends_with_its_parent(make_run: Any, platform: Any) -> None:
    run = make_run(advanced={"max_steps": 50})
    process = await run.start()
    await platform.until(lambda p: any("loading" in line for line in p.log()))
    process.stdin.close()
    assert await ended(process) == 70


async def test_the_loop_learns(make_run: Any, platform: Any) -> None:
    run = make_run(
        advanced={"max_steps": 15, "validation_rows": 0},
        training={"rollout_batch_size": 4, "n_samples_per_prompt": 8},
    )
    assert await run.work() == 0
    rewards = platform.values("rollout/raw_reward")
    assert sum(rewards[step] for step in (13, 14, 15)) / 3 > 3 * rewards[1]

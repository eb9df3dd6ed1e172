"""A finished attempt is never lost and never executed twice, wherever the worker is killed."""

import asyncio
from collections import Counter

import pytest

from osmosis_ai.eval.journal import VerdictJournal


@pytest.mark.parametrize("committed_before", [0, 3])
async def test_a_killed_worker_continues_where_it_was(
    committed_before, start_worker, platform, inference, tmp_path
):
    inference.gate = asyncio.Event()
    worker = await start_worker(6, n=2)
    await inference.until(5)
    if committed_before:
        inference.gate.set()
        await platform.until(lambda: len(platform.attempts) >= committed_before, timeout=30)
    worker.process.kill()
    await worker.process.wait()
    finished = {a["rollout_id"] for a in platform.attempts.values()}
    written_down = VerdictJournal(tmp_path / "work" / "verdicts.jsonl").read()
    inference.gate.set()
    assert await (await start_worker(6, n=2)).exit_status() == 0
    assert set(platform.attempts) == {(row, run) for row in range(6) for run in range(2)}
    assert {a["status"] for a in platform.attempts.values()} == {"success"}
    rollouts = {key: a["rollout_id"] for key, a in platform.attempts.items()}
    assert finished <= set(rollouts.values())
    assert all(rollouts[key] == verdict.rollout_id for key, verdict in written_down.items())
    # Every attempt has a seed of its own, so an attempt that was executed twice asked twice with one seed.
    asked = Counter(request["seed"] for request in inference.rollout_requests())
    repeated = sum(count - 1 for count in asked.values())
    assert len(asked) == 12
    assert repeated <= 4  # what was in hand, without a verdict, when the worker was killed
    assert repeated <= 12 - len(written_down)

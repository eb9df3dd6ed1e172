"""The evaluation worker as the platform starts it: spec in, events and exit status out."""

import asyncio
import signal


async def test_a_run_to_its_end(start_worker, platform):
    worker = await start_worker(3, todo={1: "raise"}, n=2)
    assert await worker.exit_status() == 0
    assert {key: a["status"] for key, a in platform.attempts.items()} == {
        (row, run): "failed" if row == 1 else "success" for row in range(3) for run in range(2)
    }
    assert platform.attempts[(0, 0)]["tokens"] == 10
    assert b"run_index" in platform.blobs[platform.attempts[(0, 0)]["trajectory_blob"]]
    assert platform.progress["examples_processed"] == 6
    assert any("evaluating 3 of 3 rows" in message for message in platform.messages())
    assert platform.failure is None
    assert "secret-key-123" not in str(platform.calls)


async def test_a_policy_that_cannot_be_used_is_reported(start_worker, platform):
    worker = await start_worker(2, api_key="wrong-key-456")
    assert await worker.exit_status() == 4
    assert "'policy' cannot be used" in platform.failure["reason"]
    assert platform.failure["error_type"] == "policy_unusable"
    assert platform.attempts == {}


async def test_a_stop_on_the_platform(start_worker, platform, inference):
    inference.gate = asyncio.Event()
    worker = await start_worker(12)
    await inference.until(5)
    platform.stop_requested = True
    calls = len(platform.calls)
    await platform.until(lambda: len(platform.calls) >= calls + 2)
    inference.gate.set()
    assert await worker.exit_status() == 3
    assert 4 <= len(platform.attempts) < 12


async def test_a_termination_signal_stops_gracefully(start_worker, platform, inference):
    inference.gate = asyncio.Event()
    worker = await start_worker(12)
    await inference.until(5)
    worker.process.send_signal(signal.SIGTERM)
    await platform.until(lambda: any("ending" in message for message in platform.messages()))
    inference.gate.set()
    assert await worker.exit_status() == 3
    assert 4 <= len(platform.attempts) < 12


async def test_a_worker_does_not_outlive_its_parent(start_worker, inference):
    inference.gate = asyncio.Event()
    worker = await start_worker(4)
    await inference.until(2)
    worker.process.stdin.close()
    assert await worker.exit_status() == 70

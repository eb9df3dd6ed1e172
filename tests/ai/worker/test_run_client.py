"""Events reach the platform in order and once, whatever the network does."""

import asyncio
import hashlib

import pytest

from osmosis_ai.worker import run_client
from osmosis_ai.worker.run_client import PlatformUnreachableError, RunApiError, RunClient


@pytest.fixture
async def client(platform):
    async with RunClient(api_url=platform.url, run_id="run-1", token=platform.token) as client:
        yield client


async def test_events_arrive_in_order_in_few_calls(platform, client):
    for step in range(40):
        client.log(f"line {step}", step="train")
        client.metrics(step, {"reward": step / 40})
    await client.flush()
    assert platform.messages() == [f"line {step}" for step in range(40)]
    assert platform.metrics[(39, "reward")] == 39 / 40
    assert len([call for call in platform.calls if call]) <= 2


async def test_an_event_leaves_within_a_moment_without_a_flush(platform, client):
    client.log("hello", level="warning", details={"row": 1})
    await platform.until(lambda: platform.logs, timeout=1.5)
    (log,) = platform.logs.values()
    assert (log["level"], log["details"]) == ("warning", {"row": 1})


async def test_an_attempt_is_finished_only_when_it_is_committed(platform, client):
    await client.attempt(row_index=3, run_index=0, rollout_id="r", status="success", reward=1.0, tokens=None)
    assert platform.attempts[(3, 0)]["reward"] == 1.0
    assert "tokens" not in platform.attempts[(3, 0)]


async def test_a_lost_answer_repeats_the_same_batch(platform, client):
    platform.trouble = [503, None]
    client.log("first")
    await client.attempt(row_index=0, run_index=0, rollout_id="r", status="failed")
    client.log("second")
    await client.flush()
    assert platform.messages() == ["first", "second"]
    assert len(platform.attempts) == 1
    delivered = [[e["type"] for e in call] for call in platform.calls if call]
    assert delivered == [["log", "attempt"], ["log", "attempt"], ["log"]]


async def test_progress_in_waiting_is_merged(platform, client):
    client.progress(current_step=1, total_steps=10, phase=None)
    client.progress(current_step=2)
    await client.flush()
    assert platform.progress == {"current_step": 2, "total_steps": 10}
    assert sum(event["type"] == "progress" for call in platform.calls for event in call) == 1


async def test_the_heartbeat_brings_the_wish_to_stop(platform, client, monkeypatch):
    monkeypatch.setattr(run_client, "HEARTBEAT_SEC", 0.05)
    client.log("wake up")
    await client.flush()
    assert not client.stop_requested.is_set()
    platform.stop_requested = True
    await asyncio.wait_for(client.stop_requested.wait(), 5)
    assert platform.calls[-1] == []


async def test_blobs_are_verified_and_sent_once(platform, client):
    digest = await client.put_blob(b"trajectory")
    assert digest == hashlib.sha256(b"trajectory").hexdigest()
    assert await client.put_blob(b"trajectory") == digest
    assert platform.blobs == {digest: b"trajectory"}
    assert platform.puts == 1


async def test_finished_attempts_come_page_by_page(platform, client):
    for row in range(7):
        await client.attempt(row_index=row, run_index=0, rollout_id=f"r{row}", status="success", reward=0.0)
    rows = [attempt["row_index"] async for attempt in client.finished_attempts(page=3)]
    assert rows == list(range(7))


async def test_a_platform_that_stays_away_loses_the_client(unused_port, monkeypatch):
    monkeypatch.setattr(run_client, "GIVE_UP_SEC", 0.3)
    lost = []
    url = f"http://127.0.0.1:{unused_port}"
    client = RunClient(api_url=url, run_id="run-1", token="t", on_lost=lost.append)
    await client.__aenter__()
    with pytest.raises(PlatformUnreachableError, match=str(unused_port)):
        await client.attempt(row_index=0, run_index=0, rollout_id="r", status="success")
    assert len(lost) == 1
    with pytest.raises(PlatformUnreachableError):
        client.log("into the void")
    with pytest.raises(PlatformUnreachableError):
        await client.__aexit__(None)


async def test_events_survive_a_restart_of_the_platform(serve_app, platform, unused_port):
    url = f"http://127.0.0.1:{unused_port}"
    async with RunClient(api_url=url, run_id="run-1", token=platform.token) as client:
        waiting = asyncio.create_task(
            client.attempt(row_index=0, run_index=0, rollout_id="r", status="success")
        )
        await asyncio.sleep(0)
        assert not waiting.done()
        async with serve_app(platform.app, port=unused_port):
            await asyncio.wait_for(waiting, 10)
    assert (0, 0) in platform.attempts


async def test_a_wrong_token_is_not_repeated(platform):
    client = RunClient(api_url=platform.url, run_id="run-1", token="stolen")
    await client.__aenter__()
    with pytest.raises(RunApiError, match="401"):
        await client.failed("no reason", "test")
    with pytest.raises(RunApiError):
        await client.__aexit__(None)


async def test_text_that_is_no_utf8_does_not_end_the_run(platform, client):
    client.log("half a pair: \ud83d!")
    await client.flush()
    assert platform.messages() == ["half a pair: ?!"]


async def test_values_that_cannot_be_sent_are_refused_at_once(platform, client):
    with pytest.raises(ValueError, match="JSON compliant"):
        client.metrics(1, {"loss": float("nan")})
    with pytest.raises(TypeError):
        client.log("x", details={"set": {1}})
    client.log("still alive")
    await client.flush()
    assert platform.messages() == ["still alive"]

"""The controller drives servers of every generation and says what each ending means."""

import asyncio
import contextlib

import httpx
import pytest
from fastapi.responses import JSONResponse

from osmosis_ai.rollout.controller import watch
from osmosis_ai.rollout.controller.server_client import RolloutServerClient
from osmosis_ai.rollout.driver import RolloutRunRequest


def request(**fields):
    fields.setdefault("messages", [{"role": "user", "content": "hello"}])
    fields.setdefault("label", "42")
    fields.setdefault("agent_timeout_sec", 20)
    fields.setdefault("grader_timeout_sec", 5)
    return RolloutRunRequest(**fields)


@pytest.mark.parametrize("generation", ["A", "B", "C"])
async def test_a_rollout_runs_to_its_reward(generation, start_server, start_controller, policy):
    server, url = await start_server(generation)
    controller = await start_controller(url)
    result = await controller.run(request(rollout_id="row 1:7?", extra_fields={"row_index": 1}))
    assert (result.status, result.reward, result.error_type) == ("success", 0.5, None)
    assert result.rollout_id == "row 1:7?"
    assert result.sample["messages"] == [{"role": "assistant", "content": "echo hello"}]
    assert "trajectory_messages" not in result.sample
    assert 0 < result.duration_ms < 20_000
    assert [rollout_id for rollout_id, _ in policy.requests] == ["row 1:7?"]
    assert policy.discarded == ["row 1:7?"]
    body = server.bodies[0]
    assert body["grade"] is True
    assert body["extra_fields"] == {"row_index": 1}
    assert body["llm_api_key"] != body["controller_api_key"]
    assert "/v1/rollouts/row%201%3A7%3F" in body["completion_callback_url"]


async def test_the_completion_ack_carries_the_trajectory_report(start_server, start_controller):
    server, url = await start_server()
    controller = await start_controller(url)
    result = await controller.run(request())
    await server.settled()
    acks = {channel: ack for channel, _, ack in server.rollouts[result.rollout_id].acks}
    assert acks["completion"]["trajectory"] == {"model_name": "policy", "samples": {}}
    assert "trajectory" not in acks["grader"]


@pytest.mark.parametrize("generation", ["B", "C"])
async def test_an_agent_that_raises_is_a_failed_attempt(generation, start_server, start_controller):
    async def workflow(rollout):
        raise KeyError("no such tool")

    _, url = await start_server(generation, workflow)
    controller = await start_controller(url)
    result = await controller.run(request())
    assert (result.status, result.error_type, result.reward) == ("failed", "agent_error", None)
    assert "no such tool" in result.error_message


async def test_a_removed_sample_is_skipped_even_with_a_reward(start_server, start_controller):
    async def workflow(rollout):
        return {"messages": [], "reward": 1.0, "remove_sample": True}

    _, url = await start_server("A", workflow)
    result = await (await start_controller(url)).run(request())
    assert (result.status, result.reward) == ("skipped", None)


async def test_success_without_a_reward_is_a_failure(start_server, start_controller):
    async def workflow(rollout):
        return {"messages": []}

    _, url = await start_server("B", workflow)
    result = await (await start_controller(url)).run(request())
    assert (result.status, result.error_type) == ("failed", "missing_reward")


async def test_a_full_server_is_asked_again(start_server, start_controller):
    server, url = await start_server()
    full = {"content": {"detail": "full"}, "status_code": 429, "headers": {"Retry-After": "0"}}
    server.refusals = [JSONResponse(**full), JSONResponse(**full)]
    result = await (await start_controller(url)).run(request())
    assert result.status == "success"
    assert not server.refusals


@pytest.mark.parametrize(
    ("answer", "status"),
    [(400, "failed"), (413, "failed"), (422, "failed"), (401, "invalid"), (404, "invalid"), (500, "invalid")],
)
async def test_a_rollout_that_the_server_refuses(answer, status, start_server, start_controller):
    """A request that it never takes fails for good; anything else says nothing of this row."""
    judged = []

    async def keep(request, result):
        judged.append(result)

    server, url = await start_server()
    server.refusals = [JSONResponse({"detail": "label must be text"}, status_code=answer)]
    controller = await start_controller(url, on_result=keep)
    result = await controller.run(request())
    assert (result.status, result.error_type) == (status, "rollout_protocol_error")
    assert "label must be text" in result.error_message
    assert result.failed_in is None
    assert judged == ([result] if status == "failed" else [])
    assert (await controller.run(request())).status == "success"


async def test_a_silent_server_runs_into_the_controllers_deadline(
    start_server, start_controller, monkeypatch
):
    monkeypatch.setattr("osmosis_ai.rollout.http_driver.DEADLINE_MARGIN_SEC", 0.1)
    entered = asyncio.Event()

    async def workflow(rollout):
        entered.set()
        await asyncio.Event().wait()

    server, url = await start_server("B", workflow)
    controller = await start_controller(url)
    result = await controller.run(request(rollout_id="late", agent_timeout_sec=0.1, grader_timeout_sec=0.1))
    assert (result.status, result.error_type) == ("failed", "callback_timeout")
    assert server.cancelled == ["late"]
    late = await server.rollouts["late"].post("grader", {"status": "success", "sample": {"reward": 1}})
    assert (late.status_code, late.json()) == (200, {"ok": True, "error_type": "callback_timeout"})


@pytest.mark.parametrize("generation", ["B", "C"])
async def test_a_server_that_goes_away_ends_its_rollouts_as_invalid(
    generation, serve_app, start_server, start_controller, monkeypatch
):
    monkeypatch.setattr(watch, "POLL_SEC", 0.05)
    monkeypatch.setattr(watch, "REFUSED_SEC", 0.2)
    entered = asyncio.Event()

    async def workflow(rollout):
        entered.set()
        await asyncio.Event().wait()

    server, _ = await start_server(generation, workflow)
    async with contextlib.AsyncExitStack() as stack:
        url = await stack.enter_async_context(serve_app(server.app))
        controller = await start_controller(url)
        running = [asyncio.create_task(controller.run(request())) for _ in range(3)]
        await asyncio.wait_for(entered.wait(), 5)
    results = await asyncio.wait_for(asyncio.gather(*running), 10)
    assert {(r.status, r.error_type) for r in results} == {("invalid", "rollout_server_lost")}
    assert controller.open_rollouts == 0


async def test_another_instance_at_the_same_address_ends_open_rollouts(
    start_server, start_controller, monkeypatch
):
    monkeypatch.setattr(watch, "POLL_SEC", 0.05)

    entered = asyncio.Event()

    async def workflow(rollout):
        if not entered.is_set():
            entered.set()
            await asyncio.Event().wait()
        return {"messages": [], "reward": 1.0}

    server, url = await start_server("B", workflow, instance_id="one")
    controller = await start_controller(url, instance_id="one")
    running = asyncio.create_task(controller.run(request()))
    await asyncio.wait_for(entered.wait(), 5)
    server.health = {"status": "ok", "instance_id": "two"}
    result = await asyncio.wait_for(running, 5)
    assert (result.status, result.error_type) == ("invalid", "rollout_server_lost")
    assert "another rollout server" in result.error_message
    assert (await controller.run(request())).status == "success"


async def test_run_waits_for_a_server_that_starts_late(
    serve_app, start_server, start_controller, unused_port
):
    server, _ = await start_server()
    controller = await start_controller(f"http://127.0.0.1:{unused_port}")
    running = asyncio.create_task(controller.run(request()))
    await asyncio.sleep(0)
    async with serve_app(server.app, port=unused_port):
        assert (await asyncio.wait_for(running, 10)).status == "success"


async def test_a_rollout_that_was_refused_a_connection_waits_for_the_next_start(
    serve_app, start_server, start_controller, unused_port
):
    server, _ = await start_server()
    controller = await start_controller(f"http://127.0.0.1:{unused_port}")
    async with serve_app(server.app, port=unused_port):
        assert (await controller.run(request())).status == "success"
    # The controller still takes the server for ready: nothing has told it otherwise yet.
    running = asyncio.create_task(controller.run(request(rollout_id="refused")))
    await asyncio.sleep(0.3)
    assert not running.done()
    async with serve_app(server.app, port=unused_port):
        assert (await asyncio.wait_for(running, 10)).status == "success"


async def test_a_connection_that_was_not_made_in_time_is_tried_again(
    start_server, start_controller, monkeypatch
):
    _, url = await start_server()
    controller = await start_controller(url)
    real, troubles = RolloutServerClient.admit, [httpx.ConnectTimeout("too slow")]

    async def admit(self, body, **options):
        if troubles:
            raise troubles.pop()
        return await real(self, body, **options)

    monkeypatch.setattr(RolloutServerClient, "admit", admit)
    result = await controller.run(request(rollout_id="slow"))
    assert (result.status, result.rollout_id, troubles) == ("success", "slow", [])


async def test_run_gives_up_on_a_server_that_never_starts(start_controller, unused_port):
    controller = await start_controller(f"http://127.0.0.1:{unused_port}", start_timeout_s=0.1)
    result = await controller.run(request())
    assert (result.status, result.error_type) == ("invalid", "rollout_server_unreachable")
    assert str(unused_port) in result.error_message


async def test_a_foreign_instance_is_not_used_at_the_start(start_server, start_controller):
    server, url = await start_server(instance_id="someone else")
    controller = await start_controller(url, instance_id="mine", start_timeout_s=0.1)
    result = await controller.run(request())
    assert (result.status, result.error_type) == ("invalid", "rollout_server_unreachable")
    assert server.bodies == []


async def test_cancelling_a_run_tells_the_server(start_server, start_controller):
    entered = asyncio.Event()

    async def workflow(rollout):
        entered.set()
        await asyncio.Event().wait()

    server, url = await start_server("B", workflow)
    controller = await start_controller(url)
    running = asyncio.create_task(controller.run(request(rollout_id="gone")))
    await asyncio.wait_for(entered.wait(), 5)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert server.cancelled == ["gone"]
    assert controller.open_rollouts == 0
    late = await server.rollouts["gone"].post("grader", {"status": "failure"})
    assert late.status_code == 200


async def test_a_verdict_is_durable_before_it_is_acknowledged(start_server, start_controller):
    server, url = await start_server()
    stored = []

    async def on_result(request, result):
        stored.append(result.reward)
        if len(stored) == 1:
            raise OSError("disk full")

    async def workflow(rollout):
        rollout.acks.clear()
        await rollout.post("completion", {"status": "success"})
        first = await rollout.post("grader", {"status": "success", "sample": {"reward": 0.25}})
        assert first.status_code == 503
        return {"reward": 0.25}

    server.workflow = workflow
    controller = await start_controller(url, on_result=on_result)
    result = await controller.run(request())
    assert (result.status, result.reward) == ("success", 0.25)
    assert stored == [0.25, 0.25]


@pytest.mark.parametrize("content", ["fail:502", "crash"])
async def test_a_policy_that_fails_is_never_a_score(content, start_server, start_controller):
    async def workflow(rollout):
        await rollout.chat(content)
        return {"messages": [], "reward": 0.0}

    _, url = await start_server("B", workflow)
    result = await (await start_controller(url)).run(request())
    assert (result.status, result.error_type, result.reward) == ("invalid", "policy_unavailable", None)


async def test_a_request_the_policy_refuses_is_the_agents_own_fault(start_server, start_controller):
    async def workflow(rollout):
        (await rollout.chat("fail:400")).raise_for_status()

    _, url = await start_server("B", workflow)
    result = await (await start_controller(url)).run(request())
    assert (result.status, result.error_type) == ("failed", "agent_error")


@pytest.mark.parametrize(
    ("health", "capacity"),
    [
        ({}, None),
        ({"max_queue_depth": 7, "concurrency": {"max_concurrent": 3}}, 7),
        ({"concurrency": {"max_concurrent": 3}}, 3),
        ({"max_queue_depth": True, "concurrency": {"max_concurrent": 0}}, None),
    ],
)
async def test_capacity_is_read_from_health(health, capacity, start_server, start_controller):
    _, url = await start_server(**health)
    assert await (await start_controller(url)).capacity() == capacity


@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.slow)])
async def test_many_rollouts_at_once(count, start_server, start_controller):
    together = asyncio.Event()
    inside = 0

    async def workflow(rollout):
        nonlocal inside
        inside += 1
        if inside == count:
            together.set()
        await together.wait()
        return rewarded

    rewarded = {"messages": [], "reward": 1.0}
    _, url = await start_server("B", workflow)
    controller = await start_controller(url)
    results = await asyncio.gather(*(controller.run(request()) for _ in range(count)))
    assert {r.status for r in results} == {"success"}


async def test_trouble_on_the_way_to_a_polled_result_is_sat_out(start_server, start_controller):
    server, url = await start_server("C")
    server.poll_trouble = [503, 502, 504]
    result = await (await start_controller(url)).run(request())
    assert result.status == "success"
    assert not server.poll_trouble


async def test_a_polled_rollout_that_the_server_forgot_is_lost(start_server, start_controller):
    async def workflow(rollout):
        server.rollouts.clear()
        await asyncio.Event().wait()

    server, url = await start_server("C", workflow)
    result = await (await start_controller(url)).run(request())
    assert (result.status, result.error_type) == ("invalid", "rollout_server_lost")


async def test_a_restart_of_the_own_server_before_the_first_contact_is_used(start_server, start_controller):
    _, url = await start_server(instance_id="mine.2")
    controller = await start_controller(url, instance_id="mine.1", start_timeout_s=5)
    assert (await controller.run(request())).status == "success"

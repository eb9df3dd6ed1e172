"""The driver's own names: admission delays, deadlines, outcomes."""

import asyncio
import dataclasses
import json

import httpx
import pytest

from osmosis_ai.rollout.controller import CallbackListener, CallbackStore
from osmosis_ai.rollout.controller.store import DuplicateRegistrationError
from osmosis_ai.rollout.driver import RolloutRunRequest
from osmosis_ai.rollout.http_driver import (
    HttpRolloutDriver,
    RolloutProtocolError,
    _retry_after_seconds,
    callback_deadline,
)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("inf", 1.0),
        ("-inf", 1.0),
        ("nan", 1.0),
        ("1e999", 1.0),
        ("junk", 1.0),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 1.0),
        (None, 1.0),
        ("-5", 0.05),
        ("0", 0.05),
        ("2.5", 2.5),
        ("60", 60),
        ("86400", 60),
    ],
)
def test_retry_after(header, seconds):
    headers = {} if header is None else {"Retry-After": header}
    assert _retry_after_seconds(httpx.Response(429, headers=headers)) == seconds


@pytest.mark.parametrize(
    ("agent", "grader", "deadline"),
    [(450, 150, 660), (None, 150, 3600), (450, None, 3600), (0, 0, 3600), (-5, 3, 3600), (0.5, 0, 60.5)],
)
def test_deadlines(agent, grader, deadline):
    request = RolloutRunRequest(messages=[], agent_timeout_sec=agent, grader_timeout_sec=grader)
    assert callback_deadline(request) == deadline


@pytest.fixture
async def make_driver():
    store = CallbackStore()
    async with CallbackListener(store, auth_token="key") as listener:

        def make(url, **options):
            options.setdefault("controller_api_key", "key")
            return HttpRolloutDriver(
                rollout_base_url=url,
                callback_store=store,
                completion_url_for=listener.completion_url,
                grader_url_for=listener.grader_url,
                chat_completions_url_for=listener.chat_completions_url,
                chat_api_key=None,
                **options,
            )

        make.store, make.listener = store, listener
        yield make


@pytest.mark.parametrize("generation", ["A", "B", "C"])
async def test_outcomes(generation, start_server, make_driver):
    async def workflow(rollout):
        if rollout.body["label"] == "wrong":
            raise ValueError("bad row")
        return {"messages": [], "reward": 0.75}

    server, url = await start_server(generation, workflow)
    driver = make_driver(url)
    good = await driver.run(RolloutRunRequest(messages=[], rollout_id="a"))
    bad = await driver.run(RolloutRunRequest(messages=[], rollout_id="b", label="wrong"))
    assert (good.status, good.sample.reward, good.error, good.rollout_id) == ("success", 0.75, None, "a")
    assert (bad.status, bad.rollout_id) == ("failure", "b")
    assert server.bodies[0]["llm_api_key"] is None


async def test_a_timeout_is_a_failure(start_server, make_driver):
    async def workflow(rollout):
        await asyncio.Event().wait()

    server, url = await start_server("B", workflow)
    outcome = await make_driver(url, callback_timeout_sec=0.05).run(
        RolloutRunRequest(messages=[], rollout_id="a")
    )
    assert (outcome.status, outcome.error) == ("failure", "callback_timeout")
    assert server.cancelled == ["a"]


async def test_a_refusal_carries_its_status(start_server, make_driver):
    server, url = await start_server()
    server.refusals = [httpx_like(503)]
    with pytest.raises(RolloutProtocolError) as caught:
        await make_driver(url).run(RolloutRunRequest(messages=[], rollout_id="a"))
    assert caught.value.status_code == 503


def httpx_like(status):
    from fastapi.responses import JSONResponse

    return JSONResponse({"detail": "shutting down"}, status_code=status)


async def test_bad_arguments(make_driver):
    with pytest.raises(ValueError, match="controller_api_key"):
        make_driver("http://x", controller_api_key=" ")
    with pytest.raises(ValueError, match="rollout_id"):
        await make_driver("http://x").run(RolloutRunRequest(messages=[]))
    with pytest.raises(ValueError, match="rollout_id"):
        await make_driver("http://x").run(RolloutRunRequest(messages=[], rollout_id="a/b"))


@pytest.mark.parametrize("poll", [False, True])
async def test_a_client_of_the_caller_is_used(poll, make_driver):
    seen = []

    def answer(request):
        seen.append((request.method, request.url.path))
        if request.url.path == "/rollout":
            lease = (
                {"polling_lease_token": "t"}
                if "completion_callback_url" not in json.loads(request.content)
                else {}
            )
            return httpx.Response(202, json=lease)
        if request.url.path.endswith("/result"):
            return httpx.Response(200, json={"status": "success", "sample": {"reward": 1.0}})
        return httpx.Response(200, json={"dispositions": {}})

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as http:
        driver = make_driver("http://server", http_client=http, callback_timeout_sec=0.05, poll=poll)
        outcome = await driver.run(RolloutRunRequest(messages=[], rollout_id="a"))
    if poll:
        assert (outcome.status, outcome.sample.reward) == ("success", 1.0)
        assert seen == [("POST", "/rollout"), ("GET", "/rollout/a/result")]
    else:
        assert (outcome.status, outcome.error) == ("failure", "callback_timeout")
        assert seen == [("POST", "/rollout"), ("POST", "/rollout/cancel")]


@pytest.mark.parametrize(
    "fields",
    [{"metadata": {"x": float("nan")}}, {"messages": [{"x": {1, 2}}]}, {"extra_fields": {"x": float("inf")}}],
)
async def test_a_request_without_a_json_form_is_refused_before_anything_is_sent(
    fields, start_server, make_driver
):
    server, url = await start_server()
    driver = make_driver(url)
    with pytest.raises(ValueError, match="'a' cannot be sent"):
        await driver.run(RolloutRunRequest(**{"messages": [], "rollout_id": "a", **fields}))
    assert server.bodies == []
    assert (await driver.run(RolloutRunRequest(messages=[], rollout_id="a", metadata={"x": "\ud800"}))).status
    assert server.bodies[0]["metadata"] == {"x": "\ud800"}


@pytest.mark.parametrize(
    "answer",
    [
        b"[" * 10_000 + b"]" * 10_000,
        b'{"status": NaN}',
        b'{"status": "success", "sample": {"reward": "high"}}',
        b'{"status": "success", "sample": [1]}',
        b"<html>",
    ],
)
async def test_a_polled_result_that_is_none_is_a_protocol_error(answer, make_driver):
    def respond(request):
        if request.url.path == "/rollout":
            return httpx.Response(202, json={"polling_lease_token": "t"})
        return httpx.Response(200, content=answer)

    async with httpx.AsyncClient(transport=httpx.MockTransport(respond)) as http:
        with pytest.raises(RolloutProtocolError):
            await make_driver("http://server", http_client=http).run(
                RolloutRunRequest(messages=[], rollout_id="a")
            )


async def test_an_answer_without_end_is_cut_off(make_driver, monkeypatch):
    monkeypatch.setattr("osmosis_ai.rollout.controller.server_client.MAX_BODY_BYTES", 1000)

    def respond(request):
        return httpx.Response(202, content=b"x" * 2000)

    async with httpx.AsyncClient(transport=httpx.MockTransport(respond)) as http:
        with pytest.raises(RolloutProtocolError, match="more than 1000 bytes"):
            await make_driver("http://server", http_client=http).run(
                RolloutRunRequest(messages=[], rollout_id="a")
            )


@pytest.mark.parametrize("trouble", [httpx.ConnectError, httpx.ConnectTimeout, httpx.ReadTimeout])
async def test_an_id_is_used_up_only_by_a_request_that_may_have_arrived(trouble, make_driver):
    seen = []

    def answer(request):
        seen.append(request.url.path)
        raise trouble("no luck", request=request)

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as http:
        driver = make_driver("http://server", http_client=http)
        rollout = RolloutRunRequest(messages=[], rollout_id="a")
        with pytest.raises(trouble):
            await driver.run(rollout)
        if trouble is httpx.ReadTimeout:
            assert seen == ["/rollout", "/rollout/cancel"]
            with pytest.raises(ValueError, match="'a' is already registered"):
                await driver.run(rollout)
        else:
            with pytest.raises(trouble):
                await driver.run(rollout)
            assert seen == ["/rollout", "/rollout"]


async def test_what_a_driver_sends_and_leaves_behind(start_server, make_driver):
    server, url = await start_server("B")
    made, store, listener = make_driver(url), make_driver.store, make_driver.listener

    async def ends(rollout):
        return {"messages": [], "reward": 0.5}

    async def hangs(rollout):
        await asyncio.Event().wait()

    server.workflow = ends
    rollout = RolloutRunRequest(
        [{"role": "user", "content": "x"}], "l", {"m": 1}, "r1", 5, 2, {"row_index": 0, "run_index": 1}
    )
    outcome = await made.run(rollout)
    assert (outcome.status, outcome.sample.reward, outcome.error, outcome.rollout_id) == (
        "success",
        0.5,
        None,
        "r1",
    )
    base = f"{listener.base_url}/v1/rollouts/r1"
    assert server.bodies[0] == {
        "rollout_id": "r1",
        "initial_messages": [{"role": "user", "content": "x"}],
        "label": "l",
        "metadata": {"m": 1},
        "chat_completions_url": base,
        "completion_callback_url": f"{base}/completion",
        "grader_callback_url": f"{base}/grader",
        "controller_api_key": "key",
        "llm_api_key": None,
        "grade": True,
        "agent_timeout_sec": 5,
        "grader_timeout_sec": 2,
        "extra_fields": {"row_index": 0, "run_index": 1},
    }
    assert store._sessions == {}
    with pytest.raises(DuplicateRegistrationError):
        await made.run(rollout)

    server.workflow = hangs
    running = asyncio.create_task(made.run(dataclasses.replace(rollout, rollout_id="r2")))
    async with asyncio.timeout(60):
        while "r2" not in store._sessions or len(server.bodies) < 2:  # noqa: ASYNC110 - no event for it
            await asyncio.sleep(0.01)
    await store.acknowledge_without_commit("r2")
    outcome = await running
    assert (outcome.status, outcome.error, outcome.sample) == ("cancelled", "cancelled", None)
    assert store._sessions == {}

"""The callback routes and the chat endpoint, as a rollout server and an OpenAI client meet them."""

import asyncio
import json

import httpx
import openai
import pytest

from osmosis_ai.rollout.controller import CallbackListener, CallbackStore, ChatEndpoint, chat_stream

AUTH = {"Authorization": "Bearer callback-key"}


@pytest.fixture
async def store():
    store = CallbackStore()
    await store.register("r 1")
    return store


@pytest.fixture
async def listener(store, policy):
    endpoint = ChatEndpoint(policy, auth_tokens=["chat-key", "callback-key"], is_open=store.is_open)
    async with CallbackListener(store, auth_token="callback-key", chat=endpoint) as listener:
        yield listener


@pytest.fixture
async def http():
    async with httpx.AsyncClient() as client:
        yield client


@pytest.mark.parametrize(
    ("payload", "headers", "status"),
    [
        ({"status": "success"}, AUTH, 200),
        ({"status": "success", "rollout_id": "r 1"}, AUTH, 200),
        ({"status": "success"}, {"Authorization": "Bearer chat-key"}, 401),
        ({"status": "success"}, {}, 401),
        ({"status": "success", "rollout_id": "other"}, AUTH, 422),
        ({"status": "running"}, AUTH, 422),
        ({"status": "nonsense"}, AUTH, 422),
        ({}, AUTH, 422),
    ],
)
async def test_completion_callbacks(payload, headers, status, listener, http, store):
    response = await http.post(listener.completion_url("r 1"), json=payload, headers=headers)
    assert response.status_code == status
    assert store.is_open("r 1")


async def test_grader_callbacks(listener, http, store):
    pending = await http.post(listener.grader_url("r 1"), json={"status": "pending"}, headers=AUTH)
    assert pending.status_code == 422
    nan = await http.post(
        listener.grader_url("r 1"), content='{"status":"success","sample":{"reward":NaN}}', headers=AUTH
    )
    assert nan.status_code == 422
    ended = await http.post(listener.grader_url("r 1"), json={"status": "failure"}, headers=AUTH)
    assert (ended.status_code, ended.json()) == (200, {"ok": True})
    unknown = await http.post(listener.grader_url("nobody"), json={"status": "failure"}, headers=AUTH)
    assert unknown.status_code == 404


async def test_ids_are_percent_encoded(listener):
    assert listener.grader_url("a?b c%2F").endswith("/v1/rollouts/a%3Fb%20c%252F/grader")


async def test_the_listener_can_be_started_again(store):
    listener = CallbackListener(store, auth_token="k")
    for _ in range(2):
        async with listener:
            assert listener.base_url.startswith("http://127.0.0.1:")
    with pytest.raises(RuntimeError):
        _ = listener.base_url
    with pytest.raises(ValueError, match="auth_token"):
        CallbackListener(store, auth_token=" ")


async def ask(http, listener, key="chat-key", rollout_id="r 1", **body):
    body.setdefault("messages", [{"role": "user", "content": "hello"}])
    url = listener.chat_completions_url(rollout_id) + "/chat/completions"
    return await http.post(url, json=body, headers={"Authorization": f"Bearer {key}"})


@pytest.mark.parametrize("key", ["chat-key", "callback-key"])
async def test_chat_accepts_both_keys(key, http, listener):
    answer = await ask(http, listener, key)
    assert answer.json()["choices"][0]["message"]["content"] == "echo hello"


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        ({"key": "wrong"}, 401),
        ({"rollout_id": "not open"}, 404),
        ({"n": 2}, 400),
        ({"n": True}, 200),
        ({"messages": []}, 400),
        ({"messages": "hello"}, 400),
    ],
)
async def test_chat_requests_that_are_refused(request_, status, http, listener):
    answer = await ask(http, listener, **request_)
    assert answer.status_code == status
    if status != 200:
        assert answer.json()["error"]["message"].startswith(answer.json()["detail"])
        assert answer.json()["error"]["type"]


async def test_a_chat_error_has_the_shape_of_openai(http, listener):
    answer = await ask(http, listener, messages=[{"role": "user", "content": "fail:429"}])
    assert answer.status_code == 429
    assert answer.json() == {
        "error": {"message": "refused by the script", "type": "api_error", "code": None},
        "detail": "refused by the script",
    }


def client(listener, **options):
    return openai.AsyncOpenAI(
        base_url=listener.chat_completions_url("r 1") + "/", api_key="chat-key", max_retries=0, **options
    )


async def test_a_stream_with_tool_calls_as_an_openai_client_reads_it(listener, policy):
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    policy.message = {"role": "assistant", "content": None, "tool_calls": [call, {**call, "id": "c2"}]}
    async with client(listener) as openai_client:
        stream = await openai_client.chat.completions.create(
            model="osmosis-rollout", messages=[{"role": "user", "content": "x"}], stream=True
        )
        chunks = [chunk async for chunk in stream]
    tool_calls = chunks[0].choices[0].delta.tool_calls
    assert [(c.index, c.id, c.function.name, c.function.arguments) for c in tool_calls] == [
        (0, "c1", "add", '{"a": 1}'),
        (1, "c2", "add", '{"a": 1}'),
    ]
    assert chunks[1].choices[0].finish_reason == "stop"
    assert chunks[-1].usage.total_tokens == 5
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}


async def test_a_stream_on_the_wire(http, listener):
    answer = await ask(http, listener, stream=True, stream_options={"include_usage": True})
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert (answer.headers["cache-control"], answer.headers["x-accel-buffering"]) == ("no-cache", "no")
    lines = [line for line in answer.text.split("\n\n") if line]
    assert lines[0] == ": ping"
    assert lines[-1] == "data: [DONE]"
    deltas = [json.loads(line.removeprefix("data: "))["choices"] for line in lines[1:-1]]
    assert deltas[0][0]["delta"] == {"role": "assistant", "content": "echo hello"}


async def test_control_fields_do_not_reach_the_policy(http, listener, policy):
    await ask(http, listener, stream=True, stream_options={}, n=1, temperature=0.3, model="osmosis-rollout")
    ((rollout_id, body),) = policy.requests
    assert rollout_id == "r 1"
    assert body.keys() == {"messages", "temperature", "model"}


async def test_an_error_in_a_stream_is_an_event(http, listener):
    answer = await ask(http, listener, stream=True, messages=[{"role": "user", "content": "fail:502"}])
    assert answer.status_code == 200
    assert "event: error\ndata: " in answer.text
    assert answer.text.endswith("data: [DONE]\n\n")
    async with client(listener) as openai_client:
        stream = await openai_client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "fail:502"}], stream=True
        )
        with pytest.raises(openai.APIError, match="refused by the script"):
            _ = [chunk async for chunk in stream]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("completion", "answered"),
    [
        ({"choices": [{"message": {"content": "half \ud83d"}}]}, True),
        ({"choices": [{"message": {"content": "x"}, "logprobs": {"content": [float("nan")]}}]}, False),
        ({"choices": [{"message": {"content": "x"}}], "usage": {"cost": float("inf")}}, False),
        ({"choices": [{"message": {"content": object()}}]}, False),
        ({"choices": []}, False),
        ({"choices": None}, False),
    ],
)
async def test_answers_of_policies_that_are_none(completion, answered, stream, http, store):
    """What cannot be sent is the policy's fault: the rollout gets no score for it."""

    class Policy:
        async def complete(self, rollout_id, body):
            return completion

    endpoint = ChatEndpoint(Policy(), auth_tokens=["chat-key"], is_open=store.is_open)
    async with CallbackListener(store, auth_token="callback-key", chat=endpoint) as listener:
        answer = await ask(http, listener, stream=stream)
    assert answer.status_code == (200 if stream or answered else 502)
    assert ("half \\ud83d" in answer.text) is answered
    assert ('"error"' in answer.text) is not answered
    assert (endpoint.unanswered("r 1") is None) is answered


async def test_a_long_answer_is_kept_alive(http, listener, monkeypatch):
    monkeypatch.setattr(chat_stream, "HEARTBEAT_SEC", 0.01)
    url = listener.chat_completions_url("r 1") + "/chat/completions"
    body = {"messages": [{"role": "user", "content": "hang"}], "stream": True}
    async with http.stream("POST", url, json=body, headers=AUTH) as answer:
        lines = answer.aiter_lines()
        pings = [line async for line, _ in zip_async(lines, range(6)) if line]
    assert pings == [": ping"] * 3


async def zip_async(lines, numbers):
    for number in numbers:
        yield await anext(lines), number


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_hangs_up_cancels_the_call(stream, listener, policy):
    async with httpx.AsyncClient() as impatient:
        body = {"messages": [{"role": "user", "content": "hang"}], "stream": stream}
        url = listener.chat_completions_url("r 1") + "/chat/completions"
        call = asyncio.create_task(impatient.post(url, json=body, headers=AUTH))
        await asyncio.wait_for(policy.hanging.wait(), 5)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
    await asyncio.wait_for(policy.hung_up.wait(), 5)
    assert policy.cancelled == ["r 1"]


DEEP = 10_000


@pytest.mark.parametrize(
    "content",
    [
        b'{"status": "success", "extra_fields": ' + b"[" * DEEP + b"]" * DEEP + b"}",
        b'{"status": "success", "extra_fields": [1]}',
        b"not JSON",
        b"\xff",
        b"",
    ],
)
async def test_bodies_that_are_no_callback(content, listener, http, store):
    for url in (listener.completion_url("r 1"), listener.grader_url("r 1")):
        refused = await http.post(url, content=content, headers=AUTH)
        assert refused.status_code == (200 if b"[1]" in content and url.endswith("grader") else 422)


@pytest.mark.parametrize(
    "content",
    [
        b'{"messages": [{"role": "user", "content": ' + b"[" * DEEP + b"]" * DEEP + b"}]}",
        b'{"messages": [{"role": "user", "content": "x"}], "temperature": NaN}',
        b'{"messages": [{"role": "user", "content": "x"}], "temperature": 1e999}',
        b"not JSON",
    ],
)
async def test_chat_bodies_that_are_none(content, listener, http, policy):
    url = listener.chat_completions_url("r 1") + "/chat/completions"
    refused = await http.post(url, content=content, headers=AUTH)
    assert refused.status_code == 400
    assert refused.json()["detail"] == "invalid body"
    assert refused.json()["error"]["message"].startswith("invalid body: ")
    assert policy.requests == []


async def test_bodies_without_end_are_refused(listener, http, monkeypatch):
    monkeypatch.setattr("osmosis_ai.rollout.utils.request_size.MAX_BODY_BYTES", 1000)
    for url in (
        listener.completion_url("r 1"),
        listener.grader_url("r 1"),
        listener.chat_completions_url("r 1") + "/chat/completions",
    ):
        refused = await http.post(url, content=b" " * 2000, headers=AUTH)
        assert refused.status_code == 413
        assert "1000 bytes" in refused.json()["detail"]

"""`POST /v1/chat/completions` as the OpenAI client sees it, answers scripted so that every word is known."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import openai
import pytest

from osmosis_trainer.chat.request import UNSUPPORTED
from osmosis_trainer.serve.parameters import HONOURED, WITHOUT_EFFECT

TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "multiply",
            "parameters": {
                "type": "object",
                "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            },
        },
    }
]
CALL = '<tool_call>{"name": "multiply", "arguments": {"a": 6, "b": 7}}</tool_call>'
QUESTION: list[Any] = [{"role": "user", "content": "6 times 7?"}]

Start = Callable[..., Awaitable[str]]


@pytest.fixture
async def client_for(serve_engine: Start) -> AsyncIterator[Callable[..., Awaitable[openai.AsyncOpenAI]]]:
    clients: list[openai.AsyncOpenAI] = []

    async def make(engine: Any, **options: Any) -> openai.AsyncOpenAI:
        url = await serve_engine(engine, **options)
        clients.append(openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="secret-key", max_retries=0))
        return clients[-1]

    yield make
    for client in clients:
        await client.close()


async def ask(client: openai.AsyncOpenAI, **options: Any) -> Any:
    return await client.chat.completions.create(**{"model": "base", "messages": QUESTION, **options})


async def test_a_plain_answer(client_for: Any, texts: Any, codec: Any) -> None:
    engine = texts("It is 42.<|im_end|>")
    answer = await ask(await client_for(engine), temperature=0.5, top_p=0.25, max_tokens=77, seed=3)
    assert answer.object == "chat.completion"
    assert answer.model == "base"
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ("It is 42.", "stop")
    (prompt, params, adapter), *_ = engine.seen
    assert (params.temperature, params.top_p, params.max_tokens, adapter) == (0.5, 0.25, 77, None)
    used = answer.usage
    assert (used.prompt_tokens, used.completion_tokens) == (
        len(prompt),
        len(codec.template.ids("It is 42.<|im_end|>")),
    )
    assert used.total_tokens == used.prompt_tokens + used.completion_tokens
    assert used.prompt_tokens_details.cached_tokens == 3


async def test_a_stream_carries_what_the_plain_answer_does(client_for: Any, texts: Any) -> None:
    text = "<think>hm</think>Let me see, hé 日本.\n" + CALL + "<|im_end|>"
    client = await client_for(texts(text, text))
    plain = (await ask(client, tools=TOOLS)).choices[0]
    content = reasoning = ""
    pieces, calls, finish, usages = 0, [], None, []
    async for chunk in await ask(client, tools=TOOLS, stream=True, stream_options={"include_usage": True}):
        if chunk.usage:
            usages.append(chunk.usage)
        for choice in chunk.choices:
            pieces += bool(choice.delta.content)
            content += choice.delta.content or ""
            reasoning += getattr(choice.delta, "reasoning_content", None) or ""
            calls += choice.delta.tool_calls or []
            finish = choice.finish_reason or finish
    assert (
        (content, reasoning)
        == (plain.message.content, plain.message.reasoning_content)
        == ("Let me see, hé 日本.", "hm")
    )
    assert pieces > 10, "text comes token by token"
    assert [(c.index, c.function.name, c.function.arguments) for c in calls] == [
        (0, "multiply", '{"a": 6, "b": 7}')
    ]
    assert finish == plain.finish_reason == "tool_calls"
    assert len(usages) == 1
    assert usages[0].completion_tokens > 20


async def test_text_arrives_before_the_answer_is_complete(client_for: Any, texts: Any, codec: Any) -> None:
    """The engine is held after the first words; the client has them already."""
    engine = texts()
    release = asyncio.Event()

    async def slow(prompt: Any, params: Any, *, adapter: Any = None, on_token: Any = None) -> Any:
        from osmosis_trainer.engines.protocol import Completion

        ids = codec.template.ids("Early words. Late words.<|im_end|>")
        for i, token in enumerate(ids):
            if i == len(ids) - 6:
                await release.wait()
            on_token(token, -1.0)
        return Completion(ids, [-1.0] * len(ids), "stop", 0)

    engine.sample = slow
    seen = ""
    async for chunk in await ask(await client_for(engine), stream=True):
        if chunk.choices:
            seen += chunk.choices[0].delta.content or ""
        if seen.startswith("Early words."):
            release.set()
    assert seen == "Early words. Late words."


async def test_choices_are_sampled_with_seeds_of_their_own(client_for: Any, texts: Any) -> None:
    engine = texts(*(f"answer {i}<|im_end|>" for i in range(8)))
    client = await client_for(engine)
    answer = await ask(client, n=3, seed=1)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert sorted(c.message.content for c in answer.choices) == ["answer 0", "answer 1", "answer 2"]
    seeds = [params.seed for _, params, _ in engine.seen]
    assert len(set(seeds)) == 3
    streamed: dict[int, str] = {}
    async for chunk in await ask(client, n=3, seed=1, stream=True):
        for choice in chunk.choices:
            streamed[choice.index] = streamed.get(choice.index, "") + (choice.delta.content or "")
    assert sorted(streamed.values()) == ["answer 3", "answer 4", "answer 5"]
    assert [params.seed for _, params, _ in engine.seen][3:] == seeds


@pytest.mark.parametrize("stream", [False, True])
async def test_a_stop_string_ends_the_answer(client_for: Any, texts: Any, stream: bool) -> None:
    answer = await ask(await client_for(texts("one STOP two")), stop=["STOP"], stream=stream)
    if stream:
        chunks = [chunk async for chunk in answer]
        text = "".join(c.choices[0].delta.content or "" for c in chunks)
        finish = chunks[-1].choices[0].finish_reason
    else:
        text, finish = answer.choices[0].message.content, answer.choices[0].finish_reason
    assert (text, finish) == ("one ", "stop")


@pytest.mark.parametrize("stream", [False, True])
async def test_logprobs_cover_every_sampled_token(
    client_for: Any, texts: Any, codec: Any, stream: bool
) -> None:
    text = "It is 42.<|im_end|>"
    answer = await ask(await client_for(texts(text)), logprobs=True, stream=stream)
    if stream:
        entries = [
            e async for c in answer for e in (c.choices[0].logprobs.content if c.choices[0].logprobs else [])
        ]
    else:
        entries = answer.choices[0].logprobs.content
    assert "".join(e.token for e in entries) == text
    assert len(entries) == len(codec.template.ids(text))
    assert all(e.logprob < 0 for e in entries)


async def test_an_answer_cut_by_the_limit_says_so(client_for: Any, texts: Any) -> None:
    answer = await ask(await client_for(texts("a long answer")), max_completion_tokens=3)
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 3


async def test_a_tool_conversation_goes_on(client_for: Any, texts: Any, codec: Any) -> None:
    engine = texts(CALL + "<|im_end|>", "It is 42.<|im_end|>")
    client = await client_for(engine)
    first = (await ask(client, tools=TOOLS)).choices[0].message
    result = {"role": "tool", "tool_call_id": first.tool_calls[0].id, "content": "42"}
    second = await ask(client, tools=TOOLS, messages=[*QUESTION, first.model_dump(exclude_none=True), result])
    assert second.choices[0].message.content == "It is 42."
    prompt = codec.decode_raw(engine.seen[1][0])
    assert CALL in prompt
    assert "<tool_response>42</tool_response>" in prompt


REFUSED: list[tuple[dict[str, Any], int, str]] = [
    ({"model": "nobody"}, 404, "model_not_found"),
    ({"model": "base:nobody"}, 404, "model_not_found"),
    ({"messages": []}, 400, "invalid_request"),
    ({"messages": [{"role": "user", "content": "x" * 4000}]}, 400, "context_length_exceeded"),
    ({"messages": [{"role": "assistant", "tool_calls": 5}]}, 400, "invalid_request"),
    ({"temperature": 3}, 400, "invalid_request"),
    ({"n": 9}, 400, "invalid_request"),
    ({"max_tokens": 0}, 400, "invalid_request"),
    ({"tool_choice": "required", "tools": TOOLS}, 400, "invalid_request"),
    ({"response_format": {"type": "json_object"}}, 400, "invalid_request"),
]


@pytest.mark.parametrize(("options", "status", "code"), REFUSED)
@pytest.mark.parametrize("stream", [False, True])
async def test_refusals_are_openai_errors(
    client_for: Any, texts: Any, options: dict[str, Any], status: int, code: str, stream: bool
) -> None:
    client = await client_for(texts("x"))
    with pytest.raises(openai.APIStatusError) as refused:
        await ask(client, **options, stream=stream)
    assert (refused.value.status_code, refused.value.code) == (status, code)
    assert isinstance(refused.value.body, dict)
    assert refused.value.body["type"] == "invalid_request_error"


async def test_a_wrong_key_is_refused_everywhere(serve_engine: Start, texts: Any) -> None:
    url = await serve_engine(texts())
    async with httpx.AsyncClient(base_url=url, headers={"authorization": "Bearer wrong"}) as wrong:
        answers = [
            await wrong.get("/v1/models"),
            await wrong.post("/v1/chat/completions", json={"model": "base", "messages": QUESTION}),
            await wrong.put("/admin/adapters/a", json={}),
            await wrong.delete("/admin/adapters/a"),
            await wrong.put("/admin/base-models", json={}),
        ]
        health = await wrong.get("/health")
    assert [answer.status_code for answer in answers] == [401] * 5
    assert {answer.json()["error"]["code"] for answer in answers} == {"invalid_api_key"}
    assert health.json()["status"] == "ok"


async def test_bytes_that_are_no_json_are_a_bad_request(serve_engine: Start, texts: Any) -> None:
    url = await serve_engine(texts())
    async with httpx.AsyncClient(base_url=url, headers={"authorization": "Bearer secret-key"}) as client:
        answer = await client.post("/v1/chat/completions", content=b"{")
        missing = await client.get("/v1/nothing")
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "not_found")


@pytest.mark.parametrize(
    ("more", "param", "advice"),
    [
        ('"max_token": 5', "max_token", "did you mean max_tokens?"),
        ('"stop_token_ids": [1]', "stop_token_ids", "leave it out"),
        ('"guided_json": {}', "guided_json", "leave it out"),
        ('"extra_body": {"a": 1}', "extra_body", "leave it out"),
        ('"stream": "yes"', "stream", "true or false"),
        ('"logprobs": 5', "logprobs", "true or false"),
        ('"parallel_tool_calls": "no"', "parallel_tool_calls", "true or false"),
        ('"stream_options": true', "stream_options", "an object"),
        (
            '"stream_options": {"include_usages": true}',
            "stream_options.include_usages",
            "did you mean stream_options.include_usage?",
        ),
        ('"stream_options": {"include_usage": 1}', "stream_options.include_usage", "true or false"),
        ('"temperature": NaN', "temperature", "finite"),
        ('"metadata": {"a": 1e999}', "metadata.a", "finite"),
        (r'"tools": [{"type": "\ud800"}]', "tools[0].type", "surrogate"),
    ],
)
async def test_nothing_is_silently_ignored(
    serve_engine: Start, texts: Any, more: str, param: str, advice: str
) -> None:
    url = await serve_engine(texts("x<|im_end|>"))
    raw = '{"model": "base", "messages": [{"role": "user", "content": "a"}], ' + more + "}"
    async with httpx.AsyncClient(base_url=url, headers={"authorization": "Bearer secret-key"}) as client:
        answer = await client.post("/v1/chat/completions", content=raw)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, "invalid_request", param)
    assert advice in error["message"]


async def test_what_clients_send_by_themselves_is_taken(client_for: Any, texts: Any) -> None:
    """Every parameter of OpenAI's client is known, and so is what agent frameworks add."""
    signature = inspect.signature(openai.resources.chat.AsyncCompletions.create).parameters
    named = set(signature) - {"self", "extra_headers", "extra_query", "extra_body", "timeout"}
    assert named - HONOURED - WITHOUT_EFFECT - UNSUPPORTED.keys() == {"moderation", "web_search_options"}
    added = dict.fromkeys(sorted(WITHOUT_EFFECT), "x")
    answer = await ask(
        await client_for(texts("fine<|im_end|>")), extra_body={**added, "foo": None, "stream": None}
    )
    assert answer.choices[0].message.content == "fine"


async def test_a_fault_of_the_server_is_an_openai_error(client_for: Any, texts: Any) -> None:
    engine = texts()

    async def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("inner words")

    engine.sample = broken
    with pytest.raises(openai.InternalServerError) as failed:
        await ask(await client_for(engine))
    assert failed.value.code == "internal"
    assert "inner words" not in str(failed.value)


async def test_too_many_requests_are_told_to_wait(client_for: Any, texts: Any) -> None:
    engine = texts("one<|im_end|>", "two<|im_end|>")
    engine.gate = asyncio.Event()
    client = await client_for(engine, max_requests=2)
    waiting = [asyncio.create_task(ask(client)) for _ in range(2)]
    async with asyncio.timeout(30):
        while (await client.get("/../health", cast_to=httpx.Response)).json()["open_requests"] < 2:
            pass
    with pytest.raises(openai.RateLimitError) as refused:
        await ask(client)
    assert refused.value.code == "rate_limit_exceeded"
    assert refused.value.response.headers["retry-after"] == "1"
    engine.gate.set()
    assert sorted([(await w).choices[0].message.content for w in waiting]) == ["one", "two"]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_cancels_its_sampling(
    serve_engine: Start, texts: Any, stream: bool
) -> None:
    engine = texts()
    sampling, cancelled = asyncio.Event(), asyncio.Event()

    async def forever(*_: Any, **__: Any) -> Any:
        sampling.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    engine.sample = forever
    url = await serve_engine(engine)
    async with httpx.AsyncClient(base_url=url, headers={"authorization": "Bearer secret-key"}) as client:
        body = {"model": "base", "messages": QUESTION, "stream": stream}
        asked = asyncio.create_task(client.post("/v1/chat/completions", json=body, timeout=30))
        await asyncio.wait_for(sampling.wait(), 30)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        await asyncio.wait_for(cancelled.wait(), 30)
        assert (await client.get("/health")).json()["open_requests"] == 0


async def test_an_engine_error_is_an_error_plain_and_streamed(client_for: Any, texts: Any) -> None:
    engine = texts("x<|im_end|>")
    engine.fail = 2
    client = await client_for(engine)
    with pytest.raises(openai.InternalServerError) as refused:
        await ask(client)
    assert refused.value.status_code == 503
    with pytest.raises(openai.APIError, match="out of order"):
        _ = [chunk async for chunk in await ask(client, stream=True)]
    assert (await ask(client)).choices[0].message.content == "x"


async def test_the_stream_ends_with_done(serve_engine: Start, texts: Any) -> None:
    url = await serve_engine(texts("x<|im_end|>"))
    async with httpx.AsyncClient(base_url=url, headers={"authorization": "Bearer secret-key"}) as client:
        body = {"model": "base", "messages": QUESTION, "stream": True}
        answer = await client.post("/v1/chat/completions", json=body)
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line]
    assert events[-1] == "[DONE]"
    assert json.loads(events[0])["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert all("usage" not in json.loads(event) for event in events[:-1])

"""The gateway behind the controller's real chat endpoint, asked by the real OpenAI client."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import openai
import pytest
import uvicorn
from starlette.applications import Starlette

from osmosis_ai.rollout.controller.chat_router import ChatEndpoint
from osmosis_trainer.gateway import PolicyGateway

LIMITS: dict[str, Any] = {
    "seed": 0,
    "temperature": 1.0,
    "top_p": 1.0,
    "max_prompt_tokens": 500,
    "max_response_tokens": 500,
}
QUESTION: list[Any] = [{"role": "user", "content": "6 times 7?"}]


@asynccontextmanager
async def listening(gateway: PolicyGateway) -> AsyncIterator[str]:
    """Serve the gateway's chat endpoint on a free loopback port; yields the rollout's base URL."""
    app = Starlette(routes=[ChatEndpoint(gateway, auth_tokens=["key"]).route])
    # The socket listens before the server runs: a client that is early waits in its queue.
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1/rollouts/r1"
    finally:
        server.should_exit = True
        await task


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_gets_the_message_plain_and_streamed(texts: Callable[..., Any], stream: bool) -> None:
    gateway = PolicyGateway(texts("It is 42.<|im_end|>"))
    gateway.open("r1", **LIMITS)
    async with (
        listening(gateway) as url,
        openai.AsyncOpenAI(base_url=url, api_key="key", max_retries=0) as client,
    ):
        answer = await client.chat.completions.create(model="openai/any", messages=QUESTION, stream=stream)
        if stream:
            text = "".join([c.choices[0].delta.content or "" async for c in answer if c.choices])
        else:
            text = answer.choices[0].message.content
    assert text == "It is 42."
    assert len(gateway.close("r1").calls) == 1


async def test_the_clients_own_retry_is_the_same_call(texts: Callable[..., Any]) -> None:
    """The OpenAI client repeats a 503 by itself; the answer that is then recorded is one call."""
    engine = texts("It is 42.<|im_end|>")
    engine.fail = 1
    gateway = PolicyGateway(engine)
    gateway.open("r1", **LIMITS)
    async with (
        listening(gateway) as url,
        openai.AsyncOpenAI(base_url=url, api_key="key", max_retries=2) as client,
    ):
        answer = await client.chat.completions.create(model="m", messages=QUESTION)
        assert answer.choices[0].message.content == "It is 42."
        async with httpx.AsyncClient() as raw:
            headers = {"authorization": "Bearer key", "x-stainless-retry-count": "1"}
            sent = await raw.post(
                f"{url}/chat/completions", json={"model": "m", "messages": QUESTION}, headers=headers
            )
        assert sent.json()["choices"][0]["message"]["content"] == "It is 42."
    trace = gateway.close("r1")
    assert (len(trace.calls), trace.retries) == (1, 1)


async def test_a_prompt_too_long_is_a_bad_request_for_the_client(texts: Callable[..., Any]) -> None:
    gateway = PolicyGateway(texts())
    gateway.open("r1", **LIMITS)
    async with (
        listening(gateway) as url,
        openai.AsyncOpenAI(base_url=url, api_key="key", max_retries=0) as client,
    ):
        with pytest.raises(openai.BadRequestError) as refused:
            await client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "x" * 2000}]
            )
    assert refused.value.code == "context_length_exceeded"
    assert gateway.close("r1").refused == {"context_length_exceeded": 1}

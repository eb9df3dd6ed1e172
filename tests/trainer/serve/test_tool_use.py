"""The shipped tiny model uses a tool over several turns, through the server and through the gateway."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest

from osmosis_trainer.chat import ChatCodec
from osmosis_trainer.engines.local import LocalEngine, LocalSettings
from osmosis_trainer.gateway import PolicyGateway, rows
from osmosis_trainer.serve import ModelRegistry
from osmosis_trainer.serve.process import local_engines
from osmosis_trainer.tiny import TINY_MULTIPLY, model_path

TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "multiply",
            "description": "Multiply two integers.",
            "parameters": {
                "properties": {
                    "a": {"title": "A", "type": "integer"},
                    "b": {"title": "B", "type": "integer"},
                },
                "required": ["a", "b"],
                "title": "multiply_args",
                "type": "object",
                "additionalProperties": False,
            },
            "strict": True,
        },
    }
]


def question(a: int, b: int) -> list[Any]:
    return [
        {
            "role": "system",
            "content": "Use the multiply tool for every multiplication, then answer with the result.",
        },
        {"role": "user", "content": f"What is {a} times {b}?"},
    ]


def result_of(call: Any) -> dict[str, Any]:
    arguments = json.loads(call["function"]["arguments"])
    product = arguments.get("a", 0) * arguments.get("b", 0)
    return {"role": "tool", "tool_call_id": call["id"], "content": str(product)}


@pytest.fixture
async def client(listen: Any) -> AsyncIterator[openai.AsyncOpenAI]:
    registry = ModelRegistry(local_engines(16), max_requests=64)
    await registry.put_base(TINY_MULTIPLY, model_path(TINY_MULTIPLY))
    async with (
        listen(registry) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="secret-key") as client,
    ):
        yield client


async def attempt(client: openai.AsyncOpenAI, a: int, b: int, seed: int) -> tuple[bool, bool]:
    """One conversation, answers streamed; tells whether the tool was called and whether the final answer is right."""
    messages = question(a, b)
    for _ in range(3):
        stream = await client.chat.completions.create(
            model=TINY_MULTIPLY, messages=messages, tools=TOOLS, seed=seed, max_tokens=64, stream=True
        )
        text, calls = "", []
        async for chunk in stream:
            delta = chunk.choices[0].delta
            text += delta.content or ""
            calls += [call.model_dump(exclude={"index"}) for call in delta.tool_calls or []]
        messages = [
            *messages,
            {"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})},
        ]
        if not calls:
            return len(messages) > 3, str(a * b) in text
        messages += [result_of(call) for call in calls]
    return True, False


async def test_a_conversation_with_tool_calls_through_the_server(client: openai.AsyncOpenAI) -> None:
    attempts = await asyncio.gather(*(attempt(client, 12, 7 + k % 3, seed=k) for k in range(24)))
    assert sum(called for called, _ in attempts) >= 4
    assert any(called and right for called, right in attempts)


async def test_the_gateway_extends_what_the_model_sampled() -> None:
    """A second prompt is the first one, the sampled ids and the tool result: here also what a full rendering gives."""
    engine = LocalEngine.load(model_path(TINY_MULTIPLY), LocalSettings(slots=16, threads=1))
    gateway = PolicyGateway(engine, adapter=None)
    codec = ChatCodec(engine.tokenizer)

    async def rollout(seed: int) -> int:
        rollout_id = f"r{seed}"
        gateway.open(
            rollout_id, seed=seed, temperature=1.0, top_p=1.0, max_prompt_tokens=500, max_response_tokens=300,
            max_completion_tokens=64,
        )  # fmt: skip
        messages = question(6, 7)
        first = await gateway.complete(rollout_id, {"messages": messages, "tools": TOOLS})
        message = first["choices"][0]["message"]
        if not message.get("tool_calls"):
            gateway.close(rollout_id)
            return 0
        sent_back = {"role": "assistant", "tool_calls": message["tool_calls"]}
        messages = [*messages, sent_back, *map(result_of, message["tool_calls"])]
        await gateway.complete(rollout_id, {"messages": messages, "tools": TOOLS})
        trace = gateway.close(rollout_id)
        assert trace.prompt_ids(1) == codec.render(messages, TOOLS)
        (row,) = rows(trace, advantage=1.0, group=0, mask_truncated=False)
        assert sum(row.mask) == trace.sampled_tokens
        return 1

    try:
        assert sum(await asyncio.gather(*(rollout(seed) for seed in range(16)))) >= 2
    finally:
        await engine.close()

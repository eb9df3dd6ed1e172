"""What the gateway does for a rollout's calls, with scripted answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from osmosis_ai.rollout.controller.chat import ChatError, is_client_retry
from osmosis_trainer.chat import ChatCodec
from osmosis_trainer.gateway import Branch, Ledger, PolicyGateway, TokenFate, rows, unused

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "multiply",
            "description": "Multiply two integers.",
            "parameters": {
                "type": "object",
                "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
                "additionalProperties": False,
            },
            "strict": True,
        },
    }
]
CALL = '<tool_call>{"name": "multiply", "arguments": {"a": 6, "b": 7}}</tool_call><|im_end|>'
QUESTION = [
    {"role": "system", "content": "Use the tool."},
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "6 times 7?"}]},
]
LIMITS: dict[str, Any] = {
    "seed": 5,
    "temperature": 0.75,
    "top_p": 0.875,
    "max_prompt_tokens": 600,
    "max_response_tokens": 400,
    "max_completion_tokens": 100,
}


def opened(engine: Any, **limits: Any) -> PolicyGateway:
    gateway = PolicyGateway(engine)
    gateway.open("r1", **{**LIMITS, **limits})
    return gateway


def body(messages: list[Any], **more: Any) -> dict[str, Any]:
    return {"model": "osmosis-rollout", "messages": messages, "tools": TOOLS, **more}


def message_of(completion: dict[str, Any]) -> dict[str, Any]:
    message: dict[str, Any] = completion["choices"][0]["message"]
    return message


async def retried(gateway: PolicyGateway, asked: dict[str, Any]) -> dict[str, Any]:
    """Complete as the controller does when a client says that it repeats a request."""

    async def complete() -> dict[str, Any]:
        is_client_retry.set(True)
        return await gateway.complete("r1", asked)

    return await asyncio.create_task(complete())


async def two_turns(gateway: PolicyGateway) -> tuple[dict[str, Any], dict[str, Any]]:
    first = await gateway.complete("r1", body(QUESTION))
    call = message_of(first)["tool_calls"][0]
    later = [
        *QUESTION,
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": "42"},
    ]
    return first, await gateway.complete("r1", body(later))


async def test_a_tool_rollout_becomes_one_exact_row(texts: Callable[..., Any], codec: ChatCodec) -> None:
    engine = texts(CALL, "The answer is 42.<|im_end|>")
    gateway = opened(engine)
    first, second = await two_turns(gateway)

    call = message_of(first)["tool_calls"][0]
    assert (call["function"]["name"], call["function"]["arguments"]) == ("multiply", '{"a": 6, "b": 7}')
    assert first["choices"][0]["finish_reason"] == "tool_calls"
    assert message_of(second) == {"role": "assistant", "content": "The answer is 42."}
    sampled = [codec.template.ids(CALL), codec.template.ids("The answer is 42.<|im_end|>")]
    assert [call.token_ids for call in gateway._sessions["r1"].trace().calls] == sampled
    assert second["usage"] == {
        "prompt_tokens": len(engine.seen[1][0]),
        "completion_tokens": len(sampled[1]),
        "total_tokens": len(engine.seen[1][0]) + len(sampled[1]),
        "prompt_tokens_details": {"cached_tokens": 3},
    }

    trace = gateway.close("r1")
    (row,) = rows(trace, advantage=-0.5, group=7)
    assert row.token_ids == [*engine.seen[1][0], *sampled[1]]
    assert [t for t, bit in zip(row.token_ids, row.mask, strict=True) if bit] == [*sampled[0], *sampled[1]]
    trained = [x for x, bit in zip(row.logprobs, row.mask, strict=True) if bit]
    assert trained == [*trace.calls[0].logprobs, *trace.calls[1].logprobs]
    assert (row.advantage, row.group, row.row_id) == (-0.5, 7, "r1/1")


async def test_the_trainers_sampling_wins_and_the_agent_may_only_shorten(texts: Callable[..., Any]) -> None:
    engine = texts("a<|im_end|>", "b<|im_end|>", "c<|im_end|>")
    gateway = opened(engine)
    for wanted in ({"max_tokens": 7}, {"max_completion_tokens": 5000}, {}):
        await gateway.complete("r1", body(QUESTION, temperature=0.1, top_p=0.2, seed=1, **wanted))
    params = [params for _, params, _ in engine.seen]
    assert [p.max_tokens for p in params] == [7, 100, 100]
    assert {(p.temperature, p.top_p) for p in params} == {(0.75, 0.875)}
    assert len({p.seed for p in params}) == 3, (
        "equal prompts of one rollout are sampled with seeds of their own"
    )
    assert {adapter for _, _, adapter in engine.seen} == {"policy"}


async def test_seeds_differ_between_rollouts_and_repeat_for_the_same_one(texts: Callable[..., Any]) -> None:
    seeds = []
    for session_seed in (5, 5, 6):
        engine = texts(CALL, "x<|im_end|>")
        await two_turns(opened(engine, seed=session_seed))
        seeds.append([params.seed for _, params, _ in engine.seen])
    assert seeds[0] == seeds[1]
    assert not set(seeds[0]) & set(seeds[2])


async def test_a_client_retry_gets_the_recorded_answer_and_counts_once(texts: Callable[..., Any]) -> None:
    gateway = opened(texts(CALL))
    first = await gateway.complete("r1", body(QUESTION))
    again = await retried(gateway, body(QUESTION))
    assert again["choices"] == first["choices"]
    assert again["usage"] == first["usage"]
    trace = gateway.close("r1")
    assert (len(trace.calls), trace.retries) == (1, 1)


async def test_a_retry_while_the_first_try_runs_waits_for_it(texts: Callable[..., Any]) -> None:
    engine = texts("x<|im_end|>")
    engine.gate = asyncio.Event()
    gateway = opened(engine)
    first = asyncio.create_task(gateway.complete("r1", body(QUESTION)))
    await asyncio.sleep(0)
    second = asyncio.create_task(retried(gateway, body(QUESTION)))
    for _ in range(3):
        await asyncio.sleep(0)
    engine.gate.set()
    assert message_of(await second) == message_of(await first)
    assert len(gateway.close("r1").calls) == 1


async def test_a_failed_call_is_an_infrastructure_error_and_leaves_no_trace(
    texts: Callable[..., Any],
) -> None:
    engine = texts("x<|im_end|>")
    engine.fail = 1
    gateway = opened(engine)
    with pytest.raises(ChatError) as refused:
        await gateway.complete("r1", body(QUESTION))
    assert (refused.value.status, refused.value.infrastructure) == (503, True)
    await retried(gateway, body(QUESTION))
    trace = gateway.close("r1")
    assert [call.index for call in trace.calls] == [0]
    assert (trace.retries, trace.refused) == (0, {"engine_error": 1})
    untroubled = opened(texts("x<|im_end|>"))
    await untroubled.complete("r1", body(QUESTION))
    assert trace.calls[0].seed == untroubled.close("r1").calls[0].seed


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"max_prompt_tokens": 10}, "a prompt of this run may have 10"),
        ({"max_response_tokens": 65}, "together"),
    ],
)
async def test_an_over_long_prompt_is_refused_in_openai_words(
    texts: Callable[..., Any], limits: dict[str, int], said: str
) -> None:
    gateway = opened(texts(CALL, "x"), **limits)
    with pytest.raises(ChatError) as refused:
        await two_turns(gateway)
    assert (refused.value.status, refused.value.code) == (400, "context_length_exceeded")
    assert refused.value.body()["error"]["type"] == "invalid_request_error"
    assert said in refused.value.message
    assert not refused.value.infrastructure


async def test_the_models_context_bounds_the_answer(texts: Callable[..., Any]) -> None:
    engine = texts("x" * 500)
    prompt = len(PolicyGateway(engine).codec.render(QUESTION, TOOLS))
    engine.max_context = prompt + 4
    gateway = opened(engine)
    await gateway.complete("r1", body(QUESTION))
    assert engine.seen[0][1].max_tokens == 4
    engine.max_context = prompt
    with pytest.raises(ChatError, match="prompt and answer together"):
        await gateway.complete("r1", body(QUESTION))


async def test_parallel_calls_and_edited_history_are_branches(texts: Callable[..., Any]) -> None:
    gateway = opened(texts(CALL, "one<|im_end|>", "two<|im_end|>", "three<|im_end|>", "four<|im_end|>"))
    first, _ = await two_turns(gateway)
    call = message_of(first)["tool_calls"][0]
    answered = [*QUESTION, {"role": "assistant", "content": None, "tool_calls": [call]}]
    edited = {**call, "function": {"name": "multiply", "arguments": '{"a": 60, "b": 7}'}}
    await asyncio.gather(
        gateway.complete(
            "r1", body([*answered, {"role": "tool", "tool_call_id": call["id"], "content": "43"}])
        ),
        gateway.complete(
            "r1",
            body(
                [*QUESTION, {"role": "assistant", "tool_calls": [edited]}, {"role": "tool", "content": "420"}]
            ),
        ),
    )
    await gateway.complete("r1", {"messages": [{"role": "user", "content": "something else"}]})
    trace = gateway.close("r1")
    assert [(call.parent, call.branch) for call in trace.calls] == [
        (None, Branch.ROOT),
        (0, Branch.EXTENDED),
        (0, Branch.FORK),
        (None, Branch.EDITED),
        (None, Branch.RESTART),
    ]
    assert trace.leaves() == [1, 2, 3, 4]
    ledger = Ledger()
    found = rows(trace, advantage=1.0, group=0, ledger=ledger)
    assert [sum(row.mask) for row in found] == [
        len(trace.calls[0].token_ids) + len(trace.calls[1].token_ids),
        *(len(trace.calls[i].token_ids) for i in (2, 3, 4)),
    ]
    assert ledger.tokens[TokenFate.BRANCH_DUPLICATE] == len(trace.calls[0].token_ids)


async def test_a_stop_string_ends_the_answer_before_it(texts: Callable[..., Any], codec: ChatCodec) -> None:
    gateway = opened(texts("Thought: hm\nObservation: 5 and more", "ok<|im_end|>"))
    first = await gateway.complete("r1", body(QUESTION, stop=["Observation:"]))
    assert message_of(first)["content"] == "Thought: hm\n"
    assert first["choices"][0]["finish_reason"] == "stop"
    later = [
        *QUESTION,
        {"role": "assistant", "content": "Thought: hm"},
        {"role": "user", "content": "Observation: 42"},
    ]
    await gateway.complete("r1", body(later, stop=["Observation:"]))
    trace = gateway.close("r1")
    assert codec.decode_raw(trace.calls[0].token_ids) == "Thought: hm\nObservation:"
    assert codec.decode_raw(trace.calls[1].context_ids).startswith(
        "<|im_end|>\n<|im_start|>user\nObservation: 42"
    )


async def test_row_options_have_their_reason_in_the_ledger(texts: Callable[..., Any]) -> None:
    engine = texts(CALL, "far too long an answer")
    gateway = opened(engine)
    first = await gateway.complete("r1", body(QUESTION))
    call = message_of(first)["tool_calls"][0]
    engine.policy_version = 4
    later = [*QUESTION, {"role": "assistant", "tool_calls": [call]}, {"role": "tool", "content": "42"}]
    cut = await gateway.complete("r1", body(later, max_tokens=3))
    assert cut["choices"][0]["finish_reason"] == "length"
    trace = gateway.close("r1")
    one, two = (len(call.token_ids) for call in trace.calls)
    prompt = len(trace.calls[0].context_ids)

    def fates(**options: Any) -> dict[str, int]:
        ledger = Ledger()
        rows(trace, advantage=1.0, group=0, ledger=ledger, **options)
        return {fate.value: n for fate, n in ledger.tokens.items() if fate is not TokenFate.CONTEXT}

    assert fates() == {"trained": one, "truncated": two}
    assert fates(mask_truncated=False) == {"trained": one + two}
    assert fates(oldest_version=4, mask_truncated=False) == {"stale": one, "trained": two}
    assert fates(max_row_tokens=prompt + 2) == {"trained": 2, "over_budget": one - 2, "truncated": two}
    assert rows(trace, advantage=1.0, group=0, oldest_version=9) == []
    (kept,) = rows(trace, advantage=1.0, group=0, max_row_tokens=prompt + 2)
    assert len(kept.token_ids) == prompt + 2
    ledger = Ledger()
    unused(trace, TokenFate.ZERO_VARIANCE, ledger)
    assert ledger.tokens[TokenFate.ZERO_VARIANCE] == one + two


async def test_the_report_and_the_view_show_every_token(texts: Callable[..., Any], codec: ChatCodec) -> None:
    engine = texts(CALL, "The answer is 42.<|im_end|>")
    gateway = opened(engine)
    assert gateway.trajectory_report("r1") is None
    await two_turns(gateway)
    report = gateway.trajectory_report("r1")
    assert report is not None
    (sample,) = report["samples"].values()
    assert [call["prompt_token_ids"] for call in sample["llm_call_metrics"]] == [
        prompt for prompt, _, _ in engine.seen
    ]
    assert [len(call["logprobs"]) for call in sample["llm_call_metrics"]] == [
        call["completion_tokens"] for call in sample["llm_call_metrics"]
    ]
    assert sample["final_metrics"]["total_prompt_tokens"] == sum(len(prompt) for prompt, _, _ in engine.seen)
    gateway.discard("r1")
    with pytest.raises(ChatError, match="not open"):
        await gateway.complete("r1", body(QUESTION))
    view = gateway.view(gateway.close("r1"))
    assert ["".join(t["text"] for t in call["tokens"]) for call in view["calls"]] == [
        CALL,
        "The answer is 42.<|im_end|>",
    ]
    assert [m["role"] for call in view["calls"] for m in call["messages"]] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert gateway.trajectory_report("r1") is None


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"tool_choice": "required"}, "tool_choice"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}, "image_url"),
        ({"n": 2}, "n must be 1"),
        ({"stop": ["a"] * 5}, "stop"),
    ],
)
async def test_what_cannot_be_honoured_is_refused(
    texts: Callable[..., Any], change: dict[str, Any], param: str
) -> None:
    gateway = opened(texts("x"))
    with pytest.raises(ChatError, match=param) as refused:
        await gateway.complete("r1", {**body(QUESTION), **change})
    assert refused.value.status == 400
    assert not refused.value.infrastructure

"""Invariant: tokens trained on are exactly the tokens sampled, each once, over random turn graphs with forks and retries."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from osmosis_ai.rollout.controller.chat import ChatError, is_client_retry
from osmosis_trainer.engines.protocol import Engine
from osmosis_trainer.gateway import Branch, Ledger, PolicyGateway, SessionTrace, TokenFate, rows

TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
LIMITS: dict[str, Any] = {
    "temperature": 1.0,
    "top_p": 1.0,
    "max_prompt_tokens": 1000,
    "max_response_tokens": 1000,
}


class Agent:
    """Drives the gateway as an agent framework might: continue, fork, restart, edit, retry, ask twice at once."""

    def __init__(self, gateway: PolicyGateway, rng: random.Random) -> None:
        self.gateway, self.rng = gateway, rng
        self.bodies: list[dict[str, Any]] = []
        self.histories: list[list[dict[str, Any]]] = [
            [{"role": "user", "content": [{"type": "text", "text": "go"}]}]
        ]
        self.answers = 0

    async def ask(self, body: dict[str, Any], *, retry: bool = False) -> dict[str, Any]:
        token = is_client_retry.set(retry)
        try:
            return await self.gateway.complete("r", json.loads(json.dumps(body)))
        finally:
            is_client_retry.reset(token)

    def framework_copy(self, message: dict[str, Any]) -> dict[str, Any]:
        """The assistant turn as Strands or OpenAI Agents send it back."""
        back: dict[str, Any] = {"role": "assistant"}
        if message.get("tool_calls"):
            back["tool_calls"] = message["tool_calls"]
        if message["content"]:
            text = message["content"]
            back["content"] = [{"type": "text", "text": text}] if self.rng.random() < 0.5 else text
        return back

    def reply(self) -> list[dict[str, Any]]:
        number = self.rng.randrange(100)
        return [
            {"role": self.rng.choice(["user", "tool"]), "content": f"observed {number} <|im_end|>"}
        ] * self.rng.randint(1, 2)

    async def act(self, move: str) -> None:
        history = self.rng.choice(self.histories) if move in ("fork", "edit") else self.histories[-1]
        if move == "restart":
            history = [
                {"role": "system", "content": "sub"},
                {"role": "user", "content": f"task {self.rng.random()}"},
            ]
        if move == "edit":
            history = [
                *history,
                {"role": "assistant", "content": "I never said that"},
                {"role": "user", "content": "so?"},
            ]
        body = {"messages": history, "tools": TOOLS}
        if move == "retry" and self.bodies:
            await self.ask(self.rng.choice(self.bodies), retry=True)
            return
        twice = 2 if move == "twice" else 1
        for answer in await asyncio.gather(*(self.ask(body) for _ in range(twice))):
            self.answers += 1
            self.histories.append(
                [*history, self.framework_copy(answer["choices"][0]["message"]), *self.reply()]
            )
        self.bodies.append(body)


async def play(engine: Engine, moves: list[str], seed: int) -> tuple[SessionTrace, Agent]:
    gateway = PolicyGateway(engine)
    gateway.open("r", seed=seed, **LIMITS)
    agent = Agent(gateway, random.Random(seed))
    for move in moves:
        try:
            await agent.act(move)
        except ChatError as error:
            assert error.code == "context_length_exceeded"  # noqa: PT017 - the only refusal this agent can meet
    return gateway.close("r"), agent


MOVES = st.lists(
    st.sampled_from(["continue", "continue", "fork", "restart", "edit", "retry", "twice"]),
    min_size=1,
    max_size=10,
)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(moves=MOVES, seed=st.integers(0, 2**32), mask_truncated=st.booleans())
def test_every_sampled_token_is_trained_once_or_has_a_reason(
    noisy: Callable[[], Any], moves: list[str], seed: int, mask_truncated: bool
) -> None:
    engine = noisy()
    trace, agent = asyncio.run(play(engine, moves, seed))
    assert len(trace.calls) == len(engine.seen) == agent.answers
    # The prompts in the trace are the very ids the sampler saw, whatever the order of parallel calls.
    seen = Counter(tuple(prompt) for prompt, _, _ in engine.seen)
    assert Counter(tuple(trace.prompt_ids(call.index)) for call in trace.calls) == seen

    ledger = Ledger()
    found = rows(trace, advantage=0.5, group=3, mask_truncated=mask_truncated, ledger=ledger)
    wanted = [call for call in trace.calls if not (mask_truncated and call.truncated)]
    trained = [
        (token, logprob)
        for row in found
        for token, bit, logprob in zip(row.token_ids, row.mask, row.logprobs, strict=True)
        if bit
    ]
    assert Counter(trained) == Counter(
        pair for call in wanted for pair in zip(call.token_ids, call.logprobs, strict=True)
    )
    assert ledger.tokens[TokenFate.TRAINED] == sum(len(call.token_ids) for call in wanted) == len(trained)
    truncated = sum(len(call.token_ids) for call in trace.calls if mask_truncated and call.truncated)
    assert ledger.tokens[TokenFate.TRUNCATED] == truncated
    whole = sum(len(trace.prompt_ids(i)) + len(trace.calls[i].token_ids) for i in trace.leaves())
    assert ledger.total == whole
    assert {row.advantage for row in found} <= {0.5}
    assert {row.group for row in found} <= {3}


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(moves=MOVES, seed=st.integers(0, 2**32))
def test_a_row_is_what_the_sampler_saw_and_said(
    noisy: Callable[[], Any], moves: list[str], seed: int
) -> None:
    """Every row is a beginning of a leaf's prompt plus answer, and mask 1 stands on answers only."""
    trace, _ = asyncio.run(play(noisy(), moves, seed))
    for row in rows(trace, advantage=1.0, group=0, mask_truncated=False):
        leaf = int(row.row_id.rpartition("/")[2])
        sequence = [*trace.prompt_ids(leaf), *trace.calls[leaf].token_ids]
        assert row.token_ids == sequence[: len(row.token_ids)]
        sampled: list[bool] = []
        for call in trace.path(leaf):
            sampled += [*[False] * len(call.context_ids), *[True] * len(call.token_ids)]
        assert all(where or not bit for where, bit in zip(sampled, row.mask, strict=False))


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(moves=MOVES, seed=st.integers(0, 2**32))
def test_the_same_rollout_samples_the_same_tokens_again(
    noisy: Callable[[], Any], moves: list[str], seed: int
) -> None:
    first, _ = asyncio.run(play(noisy(), moves, seed))
    again, _ = asyncio.run(play(noisy(), moves, seed))
    assert [call.token_ids for call in first.calls] == [call.token_ids for call in again.calls]
    assert SessionTrace.from_dict(json.loads(json.dumps(first.to_dict()))) == first


def test_a_linear_rollout_is_one_row(noisy: Callable[[], Any]) -> None:
    for seed in range(20):
        trace, _ = asyncio.run(play(noisy(), ["continue"] * 4, seed))
        assert set(trace.branches) <= {Branch.ROOT, Branch.EXTENDED}
        assert len(trace.leaves()) == 1

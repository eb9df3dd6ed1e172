"""The gateway over the real engine: what the sampler said of its tokens is what the learner says of the rows."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from osmosis_trainer.engines.local import LocalEngine, LocalSettings, LoraSettings
from osmosis_trainer.gateway import PolicyGateway, SessionTrace, rows

LIMITS: dict[str, Any] = {
    "temperature": 1.0,
    "top_p": 1.0,
    "max_prompt_tokens": 300,
    "max_response_tokens": 200,
}


async def converse(gateway: PolicyGateway, rollout_id: str, seed: int) -> SessionTrace:
    """Three turns, the second asked twice at once."""
    gateway.open(rollout_id, seed=seed, max_completion_tokens=12, **LIMITS)
    history: list[Any] = [{"role": "user", "content": "What is 6 times 7?"}]
    for turn in range(3):
        body = {"messages": history, "tools": []}
        answers = await asyncio.gather(*(gateway.complete(rollout_id, body) for _ in range(1 + (turn == 1))))
        message = answers[-1]["choices"][0]["message"]
        history = [*history, message, {"role": "user", "content": f"And {turn}?"}]
    return gateway.close(rollout_id)


@pytest.fixture
async def engine(model_folders: Path) -> Any:
    engine = LocalEngine.load(
        model_folders / "base", LocalSettings(lora=LoraSettings(rank=4, alpha=8.0), slots=8, threads=1)
    )
    yield engine
    await engine.close()


async def test_sampler_and_learner_agree_on_every_row(engine: LocalEngine) -> None:
    gateway = PolicyGateway(engine)
    traces = await asyncio.gather(*(converse(gateway, f"r{seed}", seed) for seed in range(3)))
    found = [row for trace in traces for row in rows(trace, advantage=1.0, group=0, mask_truncated=False)]
    assert sum(sum(row.mask) for row in found) == sum(trace.sampled_tokens for trace in traces)
    learner = await engine.score(found)
    sampler = [[x for x, bit in zip(row.logprobs, row.mask, strict=True) if bit] for row in found]
    gaps = [
        abs(a - b) for one, two in zip(sampler, learner, strict=True) for a, b in zip(one, two, strict=True)
    ]
    assert len(gaps) == sum(trace.sampled_tokens for trace in traces)
    assert max(gaps) <= 1e-5
    assert any(call.cached_tokens for trace in traces for call in trace.calls), (
        "later turns reuse earlier keys"
    )


async def test_a_rollout_repeats_whatever_runs_beside_it(engine: LocalEngine) -> None:
    gateway = PolicyGateway(engine)
    alone = await converse(gateway, "alone", 7)
    beside, *_ = await asyncio.gather(*(converse(gateway, f"r{seed}", seed) for seed in (7, 8, 9)))
    assert [call.token_ids for call in beside.calls] == [call.token_ids for call in alone.calls]

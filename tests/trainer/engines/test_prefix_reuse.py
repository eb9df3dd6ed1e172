"""Prompts computed before are not computed again, and never survive a change of weights."""

from __future__ import annotations

import asyncio

from osmosis_trainer.engines.local.cache import KeyValueCache, SlotLedger, common_prefix
from osmosis_trainer.engines.protocol import SamplingParams


async def test_samples_of_one_prompt_compute_it_once(make_engine, prompts):
    engine = make_engine(slots=8)
    prompt = prompts(1)[0] * 4
    samples = await asyncio.gather(*(engine.sample(prompt, SamplingParams(6, seed=s)) for s in range(8)))
    assert engine.sampling_counts["prompt_tokens"] == len(prompt)
    assert sorted(s.cached_tokens for s in samples) == [0] + [len(prompt)] * 7
    fresh = make_engine(slots=1)
    for seed, sample in enumerate(samples):
        assert (await fresh.sample(prompt, SamplingParams(6, seed=seed))).token_ids == sample.token_ids


async def test_prompts_with_a_common_start_compute_it_once(make_engine, prompts):
    engine = make_engine(slots=8)
    start, *ends = prompts(5)
    start = (start * 20)[:100]
    await asyncio.gather(*(engine.sample(start + end, SamplingParams(2, seed=1)) for end in ends))
    assert engine.sampling_counts["prompt_tokens"] <= len(start) + sum(len(end) for end in ends)


async def test_the_next_turn_continues_where_the_last_ended(make_engine, prompts):
    engine = make_engine(slots=4)
    prompt, other = prompts(2)
    first = await engine.sample(prompt, SamplingParams(10, seed=1))
    await engine.sample(other, SamplingParams(10, seed=1))
    longer = prompt + first.token_ids + other
    second = await engine.sample(longer, SamplingParams(10, seed=2))
    # All but the last sampled token has keys in the cache.
    assert second.cached_tokens == len(prompt) + 9
    fresh = await make_engine().sample(longer, SamplingParams(10, seed=2))
    assert fresh.token_ids == second.token_ids


async def test_a_known_prompt_costs_no_pass_of_its_own(make_engine, prompts):
    engine = make_engine(slots=4)
    prompt = prompts(1)[0]
    await engine.sample(prompt, SamplingParams(3, seed=1))
    passes = engine.sampling_counts["passes"]
    again = await engine.sample(prompt, SamplingParams(5, seed=2))
    assert again.cached_tokens == len(prompt) - 1
    assert engine.sampling_counts["passes"] == passes + 5
    fresh = await make_engine().sample(prompt, SamplingParams(5, seed=2))
    assert fresh.token_ids == again.token_ids


async def test_running_requests_move_together_and_no_text_is_lost(make_engine, prompts, monkeypatch):
    """Two short requests end below a long one: it takes the slot of one of them, whose text goes on from where it was."""
    moves = []
    exchange = KeyValueCache.exchange

    def noted(cache: KeyValueCache, *places: int) -> None:
        moves.append(places)
        exchange(cache, *places)

    monkeypatch.setattr(KeyValueCache, "exchange", noted)
    engine, fresh = make_engine(slots=3), make_engine(slots=1)
    asked = list(zip(prompts(3), (4, 5, 40), strict=True))
    samples = await asyncio.gather(*(engine.sample(p, SamplingParams(n, seed=n)) for p, n in asked))
    assert [places[:2] for places in moves] == [(2, 0)]
    for (prompt, count), sample in zip(asked, samples, strict=True):
        assert (await fresh.sample(prompt, SamplingParams(count, seed=count))).token_ids == sample.token_ids
    for (prompt, count), sample in zip(asked, samples, strict=True):
        turn = [*prompt, *sample.token_ids, 7, 8]
        later = await engine.sample(turn, SamplingParams(6, seed=3))
        assert later.cached_tokens == len(prompt) + count - 1
        assert later.token_ids == (await fresh.sample(turn, SamplingParams(6, seed=3))).token_ids


async def test_publishing_invalidates_prefixes(make_engine, prompts, train):
    engine = make_engine()
    prompt = prompts(1)[0]
    before = await engine.sample(prompt, SamplingParams(15, temperature=0.0))
    await train(engine, 6)
    after = await engine.sample(prompt, SamplingParams(15, temperature=0.0))
    assert after.cached_tokens == 0
    assert (before.policy_version, after.policy_version) == (0, 6)
    assert (before.token_ids, before.logprobs) != (after.token_ids, after.logprobs)
    base = await engine.sample(prompt, SamplingParams(15, temperature=0.0), adapter=None)
    assert base.token_ids == before.token_ids


async def test_a_sample_in_flight_keeps_its_version(make_engine, prompts, train):
    engine = make_engine()
    prompt = prompts(1)[0]
    started = asyncio.Event()
    wanted = await engine.sample(prompt, SamplingParams(120, seed=9))
    flying = asyncio.create_task(
        engine.sample(prompt, SamplingParams(120, seed=9), on_token=lambda _t, _p: started.set())
    )
    await started.wait()
    await train(engine, 1)
    landed = await flying
    assert landed.policy_version == 0
    assert landed.token_ids == wanted.token_ids


def test_common_prefix_is_exact():
    for n in range(40):
        left = list(range(40))
        right = [*range(n), -1, *range(n + 1, 40)]
        assert common_prefix(left, right) == n == common_prefix(right, left)
    assert common_prefix([1, 2], [1, 2, 3]) == 2
    assert common_prefix([], [1]) == 0


def test_a_slot_that_would_lose_its_tail_is_copied_instead():
    ledger = SlotLedger(2)
    owner = ("policy", 1)
    first = ledger.take(-1, 0)
    ledger.hold(first, owner, [1, 2, 3, 4])
    ledger.release(first)
    donor, shared = ledger.best_donor(owner, [1, 2, 9])
    assert (donor, shared) == (first, 2)
    assert ledger.take(donor, shared) != first
    assert ledger.take(first, 4) == first
    assert ledger.best_donor(("policy", 2), [1, 2, 3]) == (-1, 0)

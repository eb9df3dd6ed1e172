"""What a request gets back does not depend on how the sampler batches it."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from osmosis_trainer.engines.protocol import SamplingParams
from osmosis_trainer.errors import ContextLengthError, EngineClosedError, UnknownAdapterError


def close(left, right, tolerance=1e-5):
    return len(left) == len(right) and max(abs(a - b) for a, b in zip(left, right, strict=True)) <= tolerance


@pytest.fixture
def reference(base_folder: Path):
    return AutoModelForCausalLM.from_pretrained(base_folder).eval()


def distribution(model, ids: list[int]) -> torch.Tensor:
    with torch.no_grad():
        return torch.log_softmax(model(input_ids=torch.tensor([ids])).logits[0, -1], -1)


async def test_greedy_is_what_transformers_generates(make_engine, prompts, reference):
    engine = make_engine()
    some = prompts(6)
    results = await asyncio.gather(*(engine.sample(p, SamplingParams(20, temperature=0.0)) for p in some))
    for prompt, result in zip(some, results, strict=True):
        with torch.no_grad():
            whole = reference.generate(
                torch.tensor([prompt]),
                attention_mask=torch.ones(1, len(prompt)),
                max_new_tokens=20,
                do_sample=False,
                eos_token_id=None,
            )
        assert result.token_ids == whole[0, len(prompt) :].tolist()
        assert result.finish_reason == "length"


async def test_tokens_do_not_depend_on_neighbours(make_engine, prompts):
    engine = make_engine(slots=5)
    some = prompts(16)
    params = [SamplingParams(5 + 3 * (i % 6), seed=i, temperature=[1.0, 0.7, 1.3][i % 3]) for i in range(16)]
    together = await asyncio.gather(*(engine.sample(p, s) for p, s in zip(some, params, strict=True)))
    for prompt, param, crowded in zip(some, params, together, strict=True):
        alone = await engine.sample(prompt, param)
        assert alone.token_ids == crowded.token_ids
        assert close(alone.logprobs, crowded.logprobs)


async def test_requests_join_while_others_run(make_engine, prompts):
    engine = make_engine(slots=4)
    first, second = prompts(2)
    running = asyncio.Event()
    late: list[asyncio.Task] = []

    def on_token(_token: int, _logprob: float) -> None:
        if not running.is_set():
            running.set()
            late.append(asyncio.create_task(engine.sample(second, SamplingParams(3, seed=2))))

    early = asyncio.create_task(engine.sample(first, SamplingParams(150, seed=1), on_token=on_token))
    await running.wait()
    assert len((await late[0]).token_ids) == 3
    assert not early.done(), "the late short request waited for the long one"
    assert len((await early).token_ids) == 150


async def test_logprobs_are_those_of_the_sampled_distribution(make_engine, prompts, reference):
    engine = make_engine()
    prompt = prompts(1)[0]
    plain = await engine.sample(prompt, SamplingParams(8, seed=1))
    warm = await engine.sample(prompt, SamplingParams(8, seed=1, temperature=2.0))
    nucleus = await engine.sample(prompt, SamplingParams(8, seed=1, top_p=0.6))
    for sample, temperature, top_p in ((plain, 1.0, 1.0), (warm, 2.0, 1.0), (nucleus, 1.0, 0.6)):
        ids = list(prompt)
        for token, logprob in zip(sample.token_ids, sample.logprobs, strict=True):
            wanted = torch.log_softmax(distribution(reference, ids) / temperature, -1)
            if top_p < 1.0:
                ordered, order = wanted.exp().sort(descending=True)
                kept = order[: int((ordered.cumsum(0) < top_p).sum()) + 1]
                assert token in kept.tolist()
                wanted = wanted - wanted[kept].exp().sum().log()
            assert logprob == pytest.approx(float(wanted[token]), abs=1e-5)
            ids.append(token)


async def test_first_tokens_follow_the_models_distribution(make_engine, prompts, reference):
    engine = make_engine(slots=64)
    prompt = prompts(1)[0]
    n = 1500
    samples = await asyncio.gather(*(engine.sample(prompt, SamplingParams(1, seed=i)) for i in range(n)))
    counts = Counter(sample.token_ids[0] for sample in samples)
    probability = distribution(reference, prompt).exp()
    # Pearson's chi-square over tokens expected often enough, the rest pooled; 5 standard deviations.
    common = [t for t in range(len(probability)) if float(probability[t]) * n >= 5]
    expected = [float(probability[t]) * n for t in common]
    observed = [counts[t] for t in common]
    cells = [*zip(observed, expected, strict=True), (n - sum(observed), n - sum(expected))]
    cells = [cell for cell in cells if cell[1] >= 5]
    assert len(cells) >= 4, "the prompt's distribution says nothing"
    statistic = sum((o - e) ** 2 / e for o, e in cells)
    freedom = len(cells) - 1
    assert statistic < freedom + 5 * (2 * freedom) ** 0.5


async def test_stop_ids_end_a_sample_and_are_part_of_it(make_engine, prompts):
    engine = make_engine()
    prompt = prompts(1)[0]
    free = await engine.sample(prompt, SamplingParams(30, seed=5))
    stop = free.token_ids[10]
    stopped = await engine.sample(prompt, SamplingParams(30, seed=5, stop_ids=frozenset({stop})))
    assert stopped.finish_reason == "stop"
    assert stopped.token_ids == free.token_ids[: free.token_ids.index(stop) + 1]


async def test_seeds_differ_and_repeat(make_engine, prompts):
    engine = make_engine()
    prompt = prompts(1)[0]
    one, two, again = [await engine.sample(prompt, SamplingParams(20, seed=s)) for s in (1, 2, 1)]
    assert one.token_ids == again.token_ids != two.token_ids
    unseeded = [await engine.sample(prompt, SamplingParams(20)) for _ in range(2)]
    assert unseeded[0].token_ids != unseeded[1].token_ids


async def test_tokens_are_announced_in_order_before_the_result(make_engine, prompts):
    engine = make_engine()
    seen: list[tuple[int, float]] = []
    result = await engine.sample(
        prompts(1)[0], SamplingParams(9, seed=1), on_token=lambda t, p: seen.append((t, p))
    )
    assert seen == list(zip(result.token_ids, result.logprobs, strict=True))


async def test_an_error_of_the_callback_reaches_the_caller(make_engine, prompts):
    engine = make_engine()

    def broken(_token: int, _logprob: float) -> None:
        raise RuntimeError("connection lost")

    with pytest.raises(RuntimeError, match="connection lost"):
        await engine.sample(prompts(1)[0], SamplingParams(9, seed=1), on_token=broken)
    assert len((await engine.sample(prompts(1)[0], SamplingParams(9, seed=1))).token_ids) == 9


async def test_cancelling_frees_the_slot(make_engine, prompts):
    engine = make_engine(slots=1)
    first, second = prompts(2)
    started = asyncio.Event()
    long = asyncio.create_task(
        engine.sample(first, SamplingParams(450, seed=1), on_token=lambda _t, _p: started.set())
    )
    waiting = asyncio.create_task(engine.sample(second, SamplingParams(4, seed=2)))
    never = asyncio.create_task(engine.sample(second, SamplingParams(4, seed=3)))
    await started.wait()
    never.cancel()
    long.cancel()
    assert len((await waiting).token_ids) == 4
    assert engine.sampling_counts["sampled_tokens"] < 400
    with pytest.raises(asyncio.CancelledError):
        await long


async def test_context_is_checked_and_bounds_the_sample(make_engine):
    engine = make_engine(max_context=32)
    with pytest.raises(ContextLengthError, match="32 tokens and the model's context 32") as caught:
        await engine.sample([5] * 32, SamplingParams(1))
    assert (caught.value.prompt_tokens, caught.value.max_context) == (32, 32)
    with pytest.raises(ContextLengthError):
        await engine.sample([], SamplingParams(1))
    bounded = await engine.sample([5] * 30, SamplingParams(100, seed=1))
    assert (len(bounded.token_ids), bounded.finish_reason) == (2, "length")


async def test_unknown_adapters_and_closed_engines_are_refused(make_engine, prompts):
    engine = make_engine()
    prompt = prompts(1)[0]
    with pytest.raises(UnknownAdapterError, match=r"'other'.*policy"):
        await engine.sample(prompt, SamplingParams(1), adapter="other")
    started = asyncio.Event()
    open_request = asyncio.create_task(
        engine.sample(prompt, SamplingParams(450), on_token=lambda _t, _p: started.set())
    )
    await started.wait()
    await engine.close()
    with pytest.raises(EngineClosedError):
        await open_request
    with pytest.raises(EngineClosedError):
        await engine.sample(prompt, SamplingParams(1))


async def test_long_prompts_are_computed_in_pieces(make_engine, prompts, monkeypatch):
    from osmosis_trainer.engines.local import sampler

    engine = make_engine()
    some = [prompt * 6 for prompt in prompts(5)]
    whole = [await engine.sample(p, SamplingParams(6, seed=3)) for p in some]
    monkeypatch.setattr(sampler, "_PREFILL_TOKENS", 16)
    pieces = make_engine()
    results = await asyncio.gather(*(pieces.sample(p, SamplingParams(6, seed=3)) for p in some))
    assert [r.token_ids for r in results] == [w.token_ids for w in whole]
    assert pieces.sampling_counts["passes"] > 20

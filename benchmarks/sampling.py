"""Sampling throughput: 32 requests that arrive and end at different times, against transformers' `generate`."""

from __future__ import annotations

import asyncio
import random
from functools import partial
from typing import Any

import torch
from transformers import AutoTokenizer

from benchmarks import multiply_workload as workload
from benchmarks.result import CpuClock, Result, compare
from osmosis_trainer.engines.protocol import SamplingParams
from osmosis_trainer.tiny import TINY_MULTIPLY, model_path

REQUESTS = 32
# Requests on the way at any time; each that ends lets the next one in. `generate` gets them as full batches.
IN_FLIGHT = 8


def run(longest: int = 96, rounds: int = 5) -> list[Result]:
    """Tokens asked for (8 to `longest` a request) per CPU-second."""
    lengths = _lengths(longest)
    cases = {
        "sampling, requests arrive over time": (IN_FLIGHT, "batches of 8"),
        "sampling, requests arrive at once": (REQUESTS, "batch of 32"),
    }
    results = []
    for name, (in_flight, batches) in cases.items():
        rate, ratio = compare(
            partial(_ours, lengths, in_flight), partial(_theirs, lengths, in_flight), rounds
        )
        results.append(Result(name, rate, "tokens/CPU-s", f"transformers generate, {batches}", ratio))
    return results


def _lengths(longest: int) -> list[int]:
    rng = random.Random(5)
    return [rng.randint(8, longest) for _ in range(REQUESTS)]


def _ours(lengths: list[int], in_flight: int) -> float:
    return asyncio.run(_sample(lengths, in_flight))


async def _sample(lengths: list[int], in_flight: int) -> float:
    engine = workload.engine(slots=REQUESTS)
    prompts = [p for p in workload.prompts(engine.tokenizer, REQUESTS // 4) for _ in range(4)]
    gate = asyncio.Semaphore(in_flight)

    async def one(i: int, length: int) -> int:
        async with gate:
            sample = await engine.sample(prompts[i], SamplingParams(length, seed=i))
        return len(sample.token_ids)

    try:
        await asyncio.gather(*(one(i, 4) for i in range(4)))
        await engine.publish()  # nothing of the warm-up may be reused
        clock = CpuClock()
        with clock.running():
            counts = await asyncio.gather(*(one(i, length) for i, length in enumerate(lengths)))
    finally:
        await engine.close()
    return sum(counts) / clock.seconds


def _theirs(lengths: list[int], batch: int) -> float:
    model: Any = workload.peft_model().eval()
    tokenizer = AutoTokenizer.from_pretrained(model_path(TINY_MULTIPLY), padding_side="left")
    prompts = [p for p in workload.prompts(tokenizer, REQUESTS // 4) for _ in range(4)]

    def generate(indices: range, length: int) -> None:
        padded = tokenizer.pad({"input_ids": [prompts[i] for i in indices]}, return_tensors="pt")
        with torch.inference_mode():
            model.generate(
                **padded,
                max_new_tokens=length,
                min_new_tokens=length,
                do_sample=True,
                temperature=1.0,
                top_k=0,
            )

    generate(range(4), 4)
    clock = CpuClock()
    with clock.running():
        for start in range(0, REQUESTS, batch):
            indices = range(start, start + batch)
            generate(indices, max(lengths[i] for i in indices))
    return sum(lengths) / clock.seconds

"""Learner throughput: one optimizer step over 8 groups of 8 two-turn rollouts that share their prompt, and over as many rows that share
nothing, against a plain padded loop."""

from __future__ import annotations

import asyncio
import math
import random
from typing import Any

import torch
from transformers import AutoTokenizer

from benchmarks import multiply_workload as workload
from benchmarks.result import CpuClock, Result, compare
from osmosis_trainer.engines.protocol import Objective, TrainingRow
from osmosis_trainer.tiny import TINY_MULTIPLY, model_path

REPEATS = 1
MICRO_BATCH = 8


def run(groups: int = 8, rounds: int = 3) -> list[Result]:
    """Tokens of the rows (shared ones counted in every row) per CPU-second."""
    tokenizer = AutoTokenizer.from_pretrained(model_path(TINY_MULTIPLY))
    cases = {
        "learner, groups share their prompt": workload.rows(tokenizer, groups),
        "learner, nothing is shared": _unlike_rows(8 * groups),
    }
    return [_compare(name, rows, rounds) for name, rows in cases.items()]


def _compare(name: str, rows: list[TrainingRow], rounds: int) -> Result:
    rate, ratio = compare(lambda: asyncio.run(_ours(rows)), lambda: _padded_loop(rows), rounds)
    return Result(name, rate, "tokens/CPU-s", "padded loop, micro-batches of 8", ratio)


def _unlike_rows(count: int, seed: int = 0) -> list[TrainingRow]:
    """Rows of random tokens: 24 to 900 of them, log-normal around 100, as lengths of answers are."""
    rng = random.Random(seed)
    made = []
    for i in range(count):
        length = int(min(900, max(24, rng.lognormvariate(math.log(100), 0.8))))
        ids = [rng.randrange(5, 400) for _ in range(length)]
        mask = [0] * 12 + [1] * (length - 12)
        made.append(TrainingRow(ids, mask, [-2.0] * length, 0.5 if i % 2 else -0.5, i, str(i)))
    return made


async def _ours(rows: list[TrainingRow]) -> float:
    engine = workload.engine()
    clock = CpuClock()
    try:
        for attempt in range(REPEATS + 1):
            start = CpuClock() if attempt == 0 else clock
            with start.running():
                await engine.forward_backward(rows, Objective())
                await engine.optim_step(lr=1e-4, max_grad_norm=1.0)
    finally:
        await engine.close()
    return REPEATS * sum(len(row.token_ids) for row in rows) / clock.seconds


def _padded_loop(rows: list[TrainingRow]) -> float:
    """The loop everyone writes first: pad, full logits, clipped loss on the mask, accumulate, step."""
    model = workload.peft_model().train()
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, betas=(0.9, 0.95), weight_decay=0.0)
    trained = sum(sum(row.mask) for row in rows)
    clock = CpuClock()
    for attempt in range(REPEATS + 1):
        counting = CpuClock() if attempt == 0 else clock
        with counting.running():
            for start in range(0, len(rows), MICRO_BATCH):
                padded_micro_batch(model, rows[start : start + MICRO_BATCH], trained)
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            optimizer.zero_grad()
    return REPEATS * sum(len(row.token_ids) for row in rows) / clock.seconds


def padded_micro_batch(model: Any, rows: list[TrainingRow], trained: int) -> None:
    """Pad, full logits, clipped loss on the mask, backward."""
    width = max(len(row.token_ids) for row in rows)

    def pad(values: list[list[Any]]) -> torch.Tensor:
        return torch.tensor([v + [0] * (width - len(v)) for v in values])

    ids = pad([row.token_ids for row in rows])
    attention = pad([[1] * len(row.token_ids) for row in rows])
    mask = pad([row.mask for row in rows])[:, 1:]
    old = pad([row.logprobs for row in rows])[:, 1:]
    advantage = torch.tensor([row.advantage for row in rows])[:, None]
    logits = model(input_ids=ids, attention_mask=attention, use_cache=False).logits[:, :-1]
    new = torch.log_softmax(logits, -1).gather(-1, ids[:, 1:, None])[..., 0]
    ratio = (new - old).exp()
    surrogate = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.28) * advantage)
    (-(surrogate * mask).sum() / trained).backward()

"""A whole step of reinforcement learning, against TRL's GRPOTrainer: same model, adapter, prompts, group size and limit."""

from __future__ import annotations

import asyncio
import tempfile
import time
import warnings
from typing import Any

import torch

from benchmarks import multiply_workload as workload
from benchmarks.result import CpuClock, Result
from osmosis_trainer.engines.protocol import Objective, SamplingParams, TrainingRow
from osmosis_trainer.learner.advantages import group_advantages
from osmosis_trainer.tiny import TINY_MULTIPLY, model_path

GROUPS, SIZE, LIMIT = 8, 8, 48
STEPS = 4


def reward(text: str) -> float:
    """Something both sides can compute: a call of the tool."""
    return float("<tool_call>" in text)


def run() -> list[Result]:
    """CPU-seconds per step: sample 64 completions, reward, gradient, optimizer, publish."""
    ours, our_tokens = asyncio.run(_ours())
    theirs, their_tokens = _trl()
    # Each side samples what it samples: compare time per sampled token, then scale to our step.
    ratio = (theirs / their_tokens) / (ours / our_tokens)
    return [
        Result(
            "whole training step, 8 prompts x 8 samples",
            ours,
            "CPU-s",
            "TRL GRPOTrainer, per sampled token",
            ratio,
        )
    ]


async def _ours() -> tuple[float, float]:
    engine = workload.engine()
    prompts = workload.prompts(engine.tokenizer, GROUPS * (STEPS + 1))
    end = frozenset({engine.tokenizer.eos_token_id})
    clock, tokens = CpuClock(), 0
    try:
        for step in range(STEPS + 1):
            counting = CpuClock() if step == 0 else clock
            with counting.running():
                sampled = await _step(engine, prompts[step * GROUPS : (step + 1) * GROUPS], step, end)
            tokens += sampled if step else 0
    finally:
        await engine.close()
    return clock.seconds / STEPS, tokens / STEPS


async def _step(engine: Any, prompts: list[list[int]], step: int, end: frozenset[int]) -> int:
    params = [SamplingParams(LIMIT, stop_ids=end, seed=step * 100 + k) for k in range(SIZE)]
    samples = await asyncio.gather(*(engine.sample(prompt, p) for prompt in prompts for p in params))
    rows = []
    for group, prompt in enumerate(prompts):
        members = samples[group * SIZE : (group + 1) * SIZE]
        advantages = group_advantages([reward(engine.tokenizer.decode(s.token_ids)) for s in members])
        for k, (sample, advantage) in enumerate(zip(members, advantages, strict=True)):
            n = len(prompt)
            rows.append(
                TrainingRow(
                    prompt + sample.token_ids,
                    [0] * n + [1] * len(sample.token_ids),
                    [0.0] * n + sample.logprobs,
                    advantage,
                    group,
                    f"{group}-{k}",
                )
            )
    await engine.forward_backward(rows, Objective())
    await engine.optim_step(lr=1e-5, max_grad_norm=1.0)
    await engine.publish()
    return sum(len(s.token_ids) for s in samples)


def _trl() -> tuple[float, float]:
    from datasets import Dataset
    from transformers import AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    tokenizer = AutoTokenizer.from_pretrained(model_path(TINY_MULTIPLY), padding_side="left")
    texts = [tokenizer.decode(ids) for ids in workload.prompts(tokenizer, GROUPS * (STEPS + 1))]
    lengths: list[int] = []
    marks: list[float] = []

    def rewards(completions: list[str], completion_ids: list[list[int]], **_: Any) -> list[float]:
        lengths.append(sum(len(ids) for ids in completion_ids))
        return [reward(tokenizer.decode(ids)) for ids in completion_ids]

    class Marks(TrainerCallback):
        def on_step_end(self, *_arguments: Any, **_keywords: Any) -> None:
            marks.append(time.process_time())

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = GRPOConfig(
            output_dir=folder,
            per_device_train_batch_size=GROUPS * SIZE,
            num_generations=SIZE,
            max_completion_length=LIMIT,
            max_steps=STEPS + 1,
            learning_rate=1e-5,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
        )
        trainer = GRPOTrainer(
            model=workload.peft_model(),
            reward_funcs=rewards,
            args=config,
            train_dataset=Dataset.from_dict({"prompt": texts}),
            processing_class=tokenizer,
            callbacks=[Marks()],
        )
        torch.set_num_threads(1)
        trainer.train()
    return (marks[-1] - marks[0]) / STEPS, sum(lengths[1:]) / STEPS

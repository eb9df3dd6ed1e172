"""A whole step of reinforcement learning, against TRL's GRPOTrainer: same model, adapter, prompts, group size and tokens."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
import warnings
from itertools import pairwise
from typing import Any

import torch

from benchmarks import multiply_workload as workload
from benchmarks.result import CpuClock, Result
from osmosis_trainer.engines.protocol import Objective, SamplingParams, TrainingRow
from osmosis_trainer.learner.advantages import group_advantages
from osmosis_trainer.tiny import TINY_MULTIPLY, model_path

SIZE = 8
# Tokens of every completion, no more and no fewer: both sides do the same amount of work.
LENGTH = 24


def reward(text: str) -> float:
    """Something both sides can compute: a call of the tool."""
    return float("<tool_call>" in text)


def run(groups: int = 8, steps: int = 5) -> list[Result]:
    """Median CPU-seconds of a step: sample `groups` x 8 completions, reward, gradient, optimizer, publish."""
    ours = statistics.median(asyncio.run(_ours(groups, steps)))
    theirs = statistics.median(_trl(groups, steps))
    name = f"whole training step, {groups} prompts x {SIZE} samples"
    return [Result(name, ours, "CPU-s", f"TRL GRPOTrainer, {LENGTH} tokens a sample", theirs / ours)]


async def _ours(groups: int, steps: int) -> list[float]:
    engine = workload.engine()
    prompts = workload.prompts(engine.tokenizer, groups * (steps + 1))
    seconds = []
    try:
        for step in range(steps + 1):
            clock = CpuClock()
            with clock.running():
                await _step(engine, prompts[step * groups : (step + 1) * groups], step)
            seconds.append(clock.seconds)
    finally:
        await engine.close()
    return seconds[1:]  # the first is the warm-up


async def _step(engine: Any, prompts: list[list[int]], step: int) -> None:
    params = [SamplingParams(LENGTH, seed=step * 100 + k) for k in range(SIZE)]
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


def _trl(groups: int, steps: int) -> list[float]:
    from datasets import Dataset
    from transformers import AutoTokenizer, PrinterCallback, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    tokenizer = AutoTokenizer.from_pretrained(model_path(TINY_MULTIPLY), padding_side="left")
    texts = [tokenizer.decode(ids) for ids in workload.prompts(tokenizer, groups * (steps + 1))]
    lengths: set[int] = set()
    marks: list[float] = []

    def rewards(completions: list[str], completion_ids: list[list[int]], **_: Any) -> list[float]:
        lengths.update(len(ids) for ids in completion_ids)
        return [reward(tokenizer.decode(ids)) for ids in completion_ids]

    class Marks(TrainerCallback):
        def on_step_end(self, *_arguments: Any, **_keywords: Any) -> None:
            marks.append(time.process_time())

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = GRPOConfig(
            output_dir=folder,
            per_device_train_batch_size=groups * SIZE,
            num_generations=SIZE,
            max_completion_length=LENGTH,
            generation_kwargs={"min_new_tokens": LENGTH},
            shuffle_dataset=False,
            max_steps=steps + 1,
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
        trainer.remove_callback(PrinterCallback)
        torch.set_num_threads(1)
        trainer.train()
    if lengths != {LENGTH}:
        raise RuntimeError(f"TRL sampled completions of {sorted(lengths)} tokens, expected {LENGTH} each")
    # From the end of the first step, its warm-up, to the end of each later one.
    return [later - earlier for earlier, later in pairwise(marks)]

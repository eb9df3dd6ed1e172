"""The workload of the trainer benchmarks: multiply chats on the shipped tiny model, one thread."""

from __future__ import annotations

import random
import warnings
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from osmosis_trainer.engines.local import LocalEngine, LocalSettings, LoraSettings
from osmosis_trainer.engines.protocol import TrainingRow
from osmosis_trainer.tiny import TINY_MULTIPLY, model_path
from osmosis_trainer.tiny.chats import any_task, demonstrate, openai_agents_task, strands_task

RANK, ALPHA = 16, 32


def engine(slots: int = 64) -> LocalEngine:
    """Our engine with a fresh adapter."""
    torch.set_num_threads(1)
    lora = LoraSettings(rank=RANK, alpha=ALPHA)
    return LocalEngine.load(model_path(TINY_MULTIPLY), LocalSettings(lora=lora, threads=1, slots=slots))


def peft_model() -> Any:
    """The same model and adapter in plain transformers and PEFT."""
    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(model_path(TINY_MULTIPLY))
    config = LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules="all-linear", task_type="CAUSAL_LM")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return get_peft_model(model, config)


def prompts(tokenizer: Any, count: int, seed: int = 0) -> list[list[int]]:
    """Token ids of `count` different questions, as OpenAI Agents and Strands send them by turns."""
    rng = random.Random(seed)
    made = []
    for i in range(count):
        task = (openai_agents_task, strands_task)[i % 2](rng)
        text = tokenizer.apply_chat_template(
            task.messages, tools=task.tools, tokenize=False, add_generation_prompt=True
        )
        made.append(tokenizer(text)["input_ids"])
    return made


def rows(tokenizer: Any, groups: int = 8, size: int = 8, seed: int = 0) -> list[TrainingRow]:
    """Training rows of whole two-turn rollouts: right ones and guesses mixed as in early training."""
    rng = random.Random(seed)
    made = []
    for group in range(groups):
        task = any_task(rng)
        for k in range(size):
            ids: list[int] = []
            mask: list[int] = []
            said = list(task.messages)
            for turn in demonstrate(rng, task, 0.5):
                if turn["role"] == "assistant":
                    text = tokenizer.apply_chat_template(
                        said, tools=task.tools, tokenize=False, add_generation_prompt=True
                    )
                    ids = tokenizer(text)["input_ids"]
                    mask += [0] * (len(ids) - len(mask))
                    new = tokenizer(turn["content"] + "<|im_end|>")["input_ids"]
                    ids, mask = ids + new, mask + [1] * len(new)
                said.append(turn)
            made.append(
                TrainingRow(ids, mask, [-0.5] * len(ids), 0.5 if k % 2 else -0.5, group, f"{group}-{k}")
            )
    return made

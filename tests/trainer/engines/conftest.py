"""Engines over a two-layer Qwen3 with random weights."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from osmosis_trainer.engines.local import LocalEngine, LocalSettings, LoraSettings
from osmosis_trainer.engines.protocol import Objective, SamplingParams, TrainingRow

VOCABULARY = 96


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    words = {f"w{i}": i for i in range(VOCABULARY)}
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="w0")), eos_token="w1", pad_token="w0"
    )


@pytest.fixture(scope="session")
def base_folder(tmp_path_factory: pytest.TempPathFactory, tokenizer: PreTrainedTokenizerFast) -> Path:
    torch.manual_seed(3)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=512,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=1,
        pad_token_id=0,
    )
    model = Qwen3ForCausalLM(config)
    with torch.no_grad():
        # A random head is nearly flat; a steeper one makes greedy choices and adapters matter.
        model.lm_head.weight.mul_(20)
        for name, parameter in model.named_parameters():
            if name.endswith("proj.weight"):
                parameter.mul_(3)
    folder = tmp_path_factory.mktemp("base")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


EngineMaker = Callable[..., LocalEngine]


@pytest.fixture
async def make_engine(base_folder: Path) -> AsyncIterator[EngineMaker]:
    engines: list[LocalEngine] = []

    def make(folder: Path = base_folder, **settings: Any) -> LocalEngine:
        settings.setdefault("lora", LoraSettings(rank=4, alpha=8))
        settings.setdefault("threads", 1)
        engine = LocalEngine.load(folder, LocalSettings(**settings))
        engines.append(engine)
        return engine

    yield make
    for engine in engines:
        await engine.close()


@pytest.fixture
def prompts() -> Callable[[int], list[list[int]]]:
    """Random prompts of 3 to 40 tokens."""

    def make(count: int, seed: int = 0) -> list[list[int]]:
        generator = torch.Generator().manual_seed(seed)
        lengths = torch.randint(3, 40, (count,), generator=generator).tolist()
        return [torch.randint(2, VOCABULARY, (length,), generator=generator).tolist() for length in lengths]

    return make


Train = Callable[[LocalEngine, int], Awaitable[list[TrainingRow]]]


@pytest.fixture
def train(prompts: Callable[[int], list[list[int]]]) -> Train:
    """Sample some rows, train on them for a number of steps and publish; returns the last rows."""

    async def run(engine: LocalEngine, steps: int) -> list[TrainingRow]:
        rows: list[TrainingRow] = []
        for step in range(steps):
            rows = []
            for group, prompt in enumerate(prompts(2)):
                params = [SamplingParams(12, seed=100 * step + 10 * group + k) for k in range(4)]
                samples = await asyncio.gather(*(engine.sample(prompt, p) for p in params))
                for k, sample in enumerate(samples):
                    n = len(prompt)
                    rows.append(
                        TrainingRow(
                            token_ids=prompt + sample.token_ids,
                            mask=[0] * n + [1] * len(sample.token_ids),
                            logprobs=[0.0] * n + sample.logprobs,
                            advantage=[1.0, -1.0, 0.5, -0.5][k],
                            group=group,
                            row_id=f"{step}-{group}-{k}",
                        )
                    )
            await engine.forward_backward(rows, Objective())
            await engine.optim_step(lr=1e-2, max_grad_norm=1.0)
            await engine.publish()
        return rows

    return run

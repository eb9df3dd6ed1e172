"""Shared by the trainer's rooms: a scripted engine, and a codec over a small tokenizer with the tiny models' template."""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from osmosis_trainer.chat import ChatCodec
from osmosis_trainer.engines.protocol import Completion, Objective, SamplingParams, TrainingRow
from osmosis_trainer.errors import EngineError
from osmosis_trainer.learner import lora
from osmosis_trainer.tiny.tokenizer import TOOL_MARKS, chat_template

Script = Callable[[Sequence[int], SamplingParams], list[int]]


@cache
def small_tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level BPE without merges worth mentioning."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(["What is 6 times 7? The answer is 42. assistant user system"], trainer)
    bpe.add_tokens([AddedToken(mark, normalized=False, special=False) for mark in TOOL_MARKS])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    tokenizer.chat_template = chat_template()
    return tokenizer


@dataclass
class ScriptedEngine:
    """Speaks the engine protocol; what it samples is decided by `script`, cut to the limit and the first end token."""

    script: Script
    tokenizer: Any = field(default_factory=small_tokenizer)
    name: str = "scripted"
    capabilities: frozenset[str] = frozenset()
    max_context: int = 2048
    policy_version: int = 1
    seen: list[tuple[list[int], SamplingParams, str | None]] = field(default_factory=list)
    fail: int = 0
    gate: asyncio.Event | None = None

    async def sample(
        self,
        prompt_ids: Sequence[int],
        params: SamplingParams,
        *,
        adapter: str | None = "policy",
        on_token: Callable[[int, float], None] | None = None,
    ) -> Completion:
        if self.gate is not None:
            await self.gate.wait()
        if self.fail:
            self.fail -= 1
            raise EngineError("out of order")
        self.seen.append((list(prompt_ids), params, adapter))
        ids: list[int] = []
        finish = "length"
        for token in self.script(prompt_ids, params)[: params.max_tokens]:
            await asyncio.sleep(0)
            ids.append(token)
            if on_token is not None:
                on_token(token, -0.25)
            if token in params.stop_ids:
                finish = "stop"
                break
        logprobs = [-0.25 - i / 1000 for i in range(len(ids))]
        return Completion(ids, logprobs, finish, self.policy_version, cached_tokens=3)  # type: ignore[arg-type]

    async def forward_backward(self, rows: Sequence[TrainingRow], objective: Objective) -> dict[str, float]:
        raise AssertionError("sampling only")

    async def optim_step(self, *, lr: float, max_grad_norm: float) -> dict[str, float]:
        raise AssertionError("sampling only")

    async def publish(self) -> int:
        self.policy_version += 1
        return self.policy_version

    async def save_state(self, folder: Path) -> None:
        raise AssertionError("sampling only")

    async def load_state(self, folder: Path) -> None:
        raise AssertionError("sampling only")

    async def export_adapter(self, folder: Path) -> None:
        raise AssertionError("sampling only")

    async def load_adapter(self, name: str, folder: Path) -> None:
        raise AssertionError("sampling only")

    async def unload_adapter(self, name: str) -> None:
        raise AssertionError("sampling only")

    async def close(self) -> None:
        return


def random_tokens(prompt_ids: Sequence[int], params: SamplingParams) -> list[int]:
    """Any tokens at all, decided by prompt and seed; most answers end."""
    digest = hashlib.blake2b(f"{list(prompt_ids)}/{params.seed}".encode()).digest()
    rng = random.Random(digest)
    return [*(rng.randrange(300) for _ in range(rng.randrange(6))), rng.choice([2, 2, 2, 65])]


@pytest.fixture(scope="session")
def small_model_tokenizer() -> PreTrainedTokenizerFast:
    """The tokenizer the scripted engine and the codec share."""
    return small_tokenizer()


@pytest.fixture
def codec() -> ChatCodec:
    return ChatCodec(small_tokenizer())


@pytest.fixture
def texts(codec: ChatCodec) -> Callable[..., ScriptedEngine]:
    """An engine that answers with the given texts, one per call."""

    def build(*answers: str) -> ScriptedEngine:
        left = list(answers)
        return ScriptedEngine(lambda prompt, params: codec.template.ids(left.pop(0)))

    return build


@pytest.fixture
def noisy() -> Callable[[], ScriptedEngine]:
    """An engine that samples arbitrary tokens."""
    return lambda: ScriptedEngine(random_tokens)


def save_base(folder: Path, tokenizer: PreTrainedTokenizerFast, seed: int) -> None:
    """A two-layer Qwen3 with random weights, steep enough that greedy answers and adapters differ."""
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        max_position_embeddings=512,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = Qwen3ForCausalLM(config)
    with torch.no_grad():
        model.lm_head.weight.mul_(20)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def save_adapter(base: Path, folder: Path, seed: int) -> None:
    """A LoRA adapter over the model in `base`, with weights that change its answers."""
    adapted = lora.attach(Qwen3ForCausalLM.from_pretrained(base), lora.LoraSettings(rank=4, alpha=8.0))
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in lora.trainable(adapted).values():
            parameter.normal_(std=0.5)
    lora.export(adapted, folder)


@pytest.fixture(scope="session")
def model_folders(
    tmp_path_factory: pytest.TempPathFactory, small_model_tokenizer: PreTrainedTokenizerFast
) -> Path:
    """A folder with `base` and `other` (base models), `lora-a` and `lora-b` (adapters of `base`)."""
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("models")
    save_base(root / "base", small_model_tokenizer, 1)
    save_base(root / "other", small_model_tokenizer, 2)
    save_adapter(root / "base", root / "lora-a", 3)
    save_adapter(root / "base", root / "lora-b", 4)
    return root


@pytest.fixture(scope="session")
def tinker_server() -> ModuleType:
    """The module of the Tinker API server that tests run."""
    return beside("tinker_server")


@pytest.fixture(scope="session")
def sampling_server() -> ModuleType:
    """The module of the vLLM and SGLang server that tests run."""
    return beside("sampling_server")


def beside(name: str) -> ModuleType:
    """The module of that name beside this file."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module

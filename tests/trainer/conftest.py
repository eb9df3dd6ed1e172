"""Shared by the trainer's rooms: a scripted engine, and a codec over a small tokenizer with the tiny models' template."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from osmosis_trainer.chat import ChatCodec
from osmosis_trainer.engines.protocol import Completion, Objective, SamplingParams, TrainingRow
from osmosis_trainer.errors import EngineError
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

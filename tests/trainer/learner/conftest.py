"""A learner over a small random Qwen3, and ragged rows of prompt groups with tool results inside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from osmosis_trainer.engines.protocol import TrainingRow
from osmosis_trainer.learner.lora import LoraSettings, attach
from osmosis_trainer.learner.packs import Form
from osmosis_trainer.learner.step import Learner


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


LearnerMaker = Callable[..., Learner]


@pytest.fixture
def make_learner() -> LearnerMaker:
    def make(
        form: Form = "auto",
        token_budget: int = 8192,
        double: bool = False,
        recompute: bool = False,
        **shape: Any,
    ) -> Learner:
        torch.manual_seed(5)
        config = Qwen3Config(
            vocab_size=shape.get("vocab_size", 64),
            hidden_size=shape.get("hidden_size", 32),
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=8,
            max_position_embeddings=512,
            tie_word_embeddings=False,
            pad_token_id=0,
            bos_token_id=None,
            eos_token_id=1,
        )
        model = Qwen3ForCausalLM(config).requires_grad_(False)
        with torch.no_grad():
            model.lm_head.weight.mul_(shape.get("head_scale", 20))
        if double:
            model = model.double()
        peft_model = attach(model, LoraSettings(rank=shape.get("rank", 4), alpha=shape.get("alpha", 8)))
        if double:
            peft_model = peft_model.double()
        if shape.get("noisy_adapter", True):
            with torch.no_grad():
                for name, parameter in sorted(peft_model.named_parameters()):
                    if "lora_B" in name:
                        parameter.normal_(0, 0.05)
        return Learner(peft_model, 0, token_budget=token_budget, form=form, recompute=recompute)

    return make


@pytest.fixture
def rows() -> list[TrainingRow]:
    """Three groups of 4, 3 and 1 rows. Rows of a group share a prompt, some share a whole first turn."""
    generator = torch.Generator().manual_seed(2)

    def tokens(count: int) -> list[int]:
        return torch.randint(2, 64, (count,), generator=generator).tolist()

    made: list[TrainingRow] = []
    for group, (prompt_length, count) in enumerate([(60, 4), (25, 3), (9, 1)]):
        prompt, turn = tokens(prompt_length), tokens(6)
        for k in range(count):
            first = turn if k < 2 else tokens(3 + k)
            result, last = tokens(4), tokens(2 + 3 * k)
            ids = prompt + first + result + last
            mask = [0] * prompt_length + [1] * len(first) + [0] * 4 + [1] * len(last)
            noise = torch.randn(len(ids), generator=generator) * 0.4
            logprobs = [float(v) - 3.0 if m else 0.0 for v, m in zip(noise, mask, strict=True)]
            made.append(TrainingRow(ids, mask, logprobs, [1.0, -0.7, 0.4, -1.3][k], group, f"{group}-{k}"))
    return made


@pytest.fixture
def gradient() -> Callable[[Learner], torch.Tensor]:
    """The accumulated gradient as one vector; the learner's is cleared."""

    def take(learner: Learner) -> torch.Tensor:
        parts = [p.grad.flatten() for p in learner.parameters.values() if p.grad is not None]
        vector = torch.cat(parts).clone()
        learner.drop_gradient()
        return vector

    return take

"""A model whose weights are sharded computes what the whole one does, bit for bit; here one process holds all parts.

Several processes: tests/trainer/engines/split/test_learners.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from transformers import (
    Qwen3_5ForCausalLM,
    Qwen3_5TextConfig,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from osmosis_trainer.engines.protocol import Objective, TrainingRow
from osmosis_trainer.learner import logprobs
from osmosis_trainer.learner.lora import LoraSettings, attach, trainable
from osmosis_trainer.learner.sharding import ShardedPasses, held_bytes
from osmosis_trainer.learner.step import Learner

_SHAPE = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
}


@pytest.fixture(scope="module", autouse=True)
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A process group of this process alone."""
    store = tmp_path_factory.mktemp("group") / "store"
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def model(kind: str) -> Any:
    torch.manual_seed(5)
    if kind == "experts":
        config = Qwen3MoeConfig(
            **_SHAPE, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, decoder_sparse_step=1
        )
        return Qwen3MoeForCausalLM(config)
    if kind == "recurrent":
        heads = {"linear_num_key_heads": 2, "linear_num_value_heads": 2}
        sizes = {"linear_key_head_dim": 8, "linear_value_head_dim": 8}
        layers = ["linear_attention", "full_attention"]
        return Qwen3_5ForCausalLM(Qwen3_5TextConfig(**_SHAPE, **heads, **sizes, layer_types=layers))
    return Qwen3ForCausalLM(Qwen3Config(**_SHAPE, tie_word_embeddings=kind == "tied"))


def learner(kind: str, *, sharded: bool, recompute: bool) -> Learner:
    adapted = attach(model(kind).eval().requires_grad_(False), LoraSettings(rank=4, alpha=8))
    parameters = trainable(adapted)
    with torch.no_grad():
        for name, parameter in parameters.items():
            if "lora_B" in name:
                parameter.normal_(0, 0.05)
    base, cpu = adapted.get_base_model(), torch.device("cpu")
    passes = ShardedPasses(base, cpu, parameters.values()) if sharded else None
    return Learner(adapted, 0, token_budget=300, recompute=recompute, passes=passes)


@pytest.mark.parametrize(
    ("kind", "recompute", "block"),
    [("untied", True, 5), ("tied", False, 5), ("experts", True, None), ("recurrent", True, None)],
)
def test_sharded_weights_give_the_same_numbers(
    rows: list[TrainingRow], monkeypatch: pytest.MonkeyPatch, kind: str, recompute: bool, block: int | None
) -> None:
    if block is not None:
        # Log-probabilities in blocks of so many tokens, computed again in the backward pass.
        monkeypatch.setattr(logprobs, "_BLOCK_ELEMENTS", block * 64)
    whole = learner(kind, sharded=False, recompute=recompute)
    sharded = learner(kind, sharded=True, recompute=recompute)
    for objective in (Objective(), Objective("gspo", kl_coef=0.1)):
        assert sharded.forward_backward(rows, objective) == whole.forward_backward(rows, objective)
        for name, parameter in whole.parameters.items():
            assert torch.equal(sharded.parameters[name].grad, parameter.grad), name
        assert sharded.optim_step(1e-2, 1.0) == whole.optim_step(1e-2, 1.0)
    assert sharded.score(rows) == whole.score(rows)
    # Between passes the module has parts only, and nothing but the adapter was changed.
    frozen = [p for p in sharded.model.parameters() if not p.requires_grad]
    assert frozen
    assert all(isinstance(p, DTensor) for p in frozen)
    assert held_bytes(sharded.model) == held_bytes(whole.model)

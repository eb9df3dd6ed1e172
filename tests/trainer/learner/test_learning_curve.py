"""A small policy learns to answer "maybe": sampling, advantages, loss and optimizer together, against known curves.

Reward: maybe 1, no .75, yes .5, anything else 0. Reference curves of three seeds, measured with an independent prototype,
are within the bands below; rank 1 has enough capacity too.
"""

from __future__ import annotations

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from osmosis_trainer.engines.protocol import Objective, TrainingRow
from osmosis_trainer.learner.advantages import group_advantages
from osmosis_trainer.learner.lora import LoraSettings, attach
from osmosis_trainer.learner.step import Learner

REWARD = {3: 1.0, 4: 0.75, 5: 0.5}


def curve(seed: int, rank: int = 8, objective: Objective | None = None) -> list[float]:
    """Mean reward of each of ten steps: 8 prompts x 16 one-token samples."""
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=16,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=64,
        tie_word_embeddings=False,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=1,
    )
    model = Qwen3ForCausalLM(config).requires_grad_(False)
    with torch.no_grad():
        # With a flat random head a low-rank update cannot move the logits.
        model.lm_head.weight.mul_(5)
    learner = Learner(attach(model, LoraSettings(rank=rank, alpha=4 * rank, seed=seed)), 0)
    prompts = torch.randint(6, 16, (24, 6)).tolist()
    rewards = []
    for step in range(10):
        rows: list[TrainingRow] = []
        total = 0.0
        for group in range(8):
            prompt = prompts[(8 * step + group) % 24]
            with torch.no_grad():
                logprobs = torch.log_softmax(learner.base(torch.tensor([prompt])).logits[0, -1], -1)
            tokens = torch.multinomial(logprobs.exp(), 16, replacement=True).tolist()
            scores = [REWARD.get(token, 0.0) for token in tokens]
            total += sum(scores)
            for k, (token, advantage) in enumerate(zip(tokens, group_advantages(scores), strict=True)):
                old = [0.0] * 6 + [float(logprobs[token])]
                rows.append(
                    TrainingRow([*prompt, token], [0] * 6 + [1], old, advantage, group, f"{group}-{k}")
                )
        rewards.append(total / 128)
        learner.forward_backward(rows, objective or Objective())
        learner.optim_step(1e-2, 1.0)
    return rewards


@pytest.mark.parametrize("seed", [0, 1, pytest.param(2, marks=pytest.mark.slow)])
def test_the_policy_learns_within_ten_steps(seed: int):
    rewards = curve(seed)
    assert rewards[0] < 0.4
    assert max(rewards[3:6]) >= 0.55, rewards
    assert sum(rewards[-3:]) / 3 >= 0.85, rewards


def test_rank_one_learns_too():
    assert sum(curve(1, rank=1)[-3:]) / 3 >= 0.75


@pytest.mark.parametrize("loss", ["gspo", "cispo"])
def test_other_losses_learn(loss: str):
    rewards = curve(1, objective=Objective(loss))
    assert sum(rewards[-3:]) / 3 >= 0.7, rewards


def test_a_wrong_sign_would_be_noticed():
    """The bands above are not met by a policy that does not learn."""
    assert sum(curve(1, objective=Objective("clip", kl_coef=50.0))[-3:]) / 3 < 0.6

"""Log-probabilities and entropies at sampled positions only."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from osmosis_trainer.learner.attention_masks import attention_mask
from osmosis_trainer.learner.head import adjust_logits
from osmosis_trainer.learner.packs import MicroBatch

# Elements of one block of logits: 128 MiB in float32. The logits never exist all at once.
_BLOCK_ELEMENTS = 1 << 25


def hidden_states(model: Any, batch: MicroBatch) -> Tensor:
    """Last hidden states [n * width, hidden] of the causal model's decoder."""
    mask: Any = batch.mask
    if mask is not None:
        mask = attention_mask(model.config, mask, batch.positions, batch.positions, model.dtype)
    # use_cache must be off: with it, some models read restarted positions as packed sequences.
    out = model.base_model(
        input_ids=batch.ids, attention_mask=mask, position_ids=batch.positions, use_cache=False
    )
    hidden: Tensor = out.last_hidden_state
    return hidden.flatten(0, 1)


def token_logprobs(model: Any, batch: MicroBatch, temperature: float) -> tuple[Tensor, Tensor]:
    """Log-probability [m] of each trained token (with gradient) and the distribution's entropy [m] (without).

    Both in nats, at `temperature`; 0 (greedy) counts as 1, as in the sampler.
    """
    hidden = hidden_states(model, batch)[batch.source]
    head = model.get_output_embeddings()
    block = max(1, _BLOCK_ELEMENTS // head.weight.shape[0])
    scale = temperature or 1.0
    if len(hidden) <= block:
        return _block(hidden, batch.target, head, model.config, scale)
    logprobs, entropies = [], []
    for begin in range(0, len(hidden), block):
        part = slice(begin, begin + block)
        # Recomputed in the backward pass: memory stays one block however many tokens are trained.
        logprob, entropy = checkpoint(
            _block, hidden[part], batch.target[part], head, model.config, scale, use_reentrant=False
        )
        logprobs.append(logprob)
        entropies.append(entropy)
    return torch.cat(logprobs), torch.cat(entropies)


def _block(
    hidden: Tensor, target: Tensor, head: Any, config: Any, temperature: float
) -> tuple[Tensor, Tensor]:
    logits = adjust_logits(config, head(hidden)).float()
    if temperature != 1.0:
        logits = logits / temperature
    logprobs = torch.log_softmax(logits, -1)
    with torch.no_grad():
        entropy = -(logprobs.exp() * logprobs).sum(-1)
    # A sum of one and no view: where the model is sharded the result carries a hook, which views may lose.
    return logprobs.gather(1, target[:, None]).sum(-1), entropy

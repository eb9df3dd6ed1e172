"""Turning logits into tokens: temperature, top-p, and one uniform number per token.

The uniform is mapped through the inverse of the cumulative distribution. A request's tokens therefore depend on its
own seed and distribution alone, never on which other requests share the batch.
"""

from __future__ import annotations

import torch
from torch import Tensor


def pick(
    logits: Tensor, temperatures: list[float], top_ps: list[float], uniforms: list[float]
) -> tuple[list[int], list[float]]:
    """Choose one token per row of `logits` [n, vocabulary].

    Returns the tokens and their log-probabilities (nats) under the distribution sampled from. A temperature of 0 takes
    the most likely token and reports its log-probability at temperature 1.
    """
    logits = logits.float()
    if any(t not in (0.0, 1.0) for t in temperatures):
        scale = torch.tensor([t or 1.0 for t in temperatures], device=logits.device)
        logits = logits / scale[:, None]
    logprobs = torch.log_softmax(logits, -1)
    if any(p < 1.0 for p in top_ps):
        logprobs = _nucleus(logprobs, torch.tensor(top_ps, device=logits.device))
    if all(t == 0.0 for t in temperatures):
        best, tokens = logprobs.max(-1)
        return tokens.tolist(), best.tolist()
    cumulative = logprobs.exp().double().cumsum(-1)
    point = torch.tensor(uniforms, dtype=torch.float64, device=logits.device)[:, None] * cumulative[:, -1:]
    tokens = torch.searchsorted(cumulative, point, right=True)[:, 0].clamp_(max=logits.shape[-1] - 1)
    if any(t == 0.0 for t in temperatures):
        greedy = torch.tensor([t == 0.0 for t in temperatures], device=logits.device)
        tokens = torch.where(greedy, logprobs.argmax(-1), tokens)
    return tokens.tolist(), logprobs.gather(1, tokens[:, None])[:, 0].tolist()


def _nucleus(logprobs: Tensor, top_p: Tensor) -> Tensor:
    """Keep the smallest set of most likely tokens whose mass reaches top_p (Holtzman et al. 2020), renormalised.

    Rows with top_p 1 are returned unchanged.
    """
    ordered, order = logprobs.sort(dim=-1, descending=True, stable=True)
    before = ordered.exp().cumsum(-1) - ordered.exp()
    drop = (before >= top_p[:, None]) & (top_p[:, None] < 1.0)
    drop[:, 0] = False
    kept = logprobs.masked_fill(torch.zeros_like(drop).scatter(1, order, drop), float("-inf"))
    renormalised = torch.log_softmax(kept, -1)
    return torch.where((top_p < 1.0)[:, None], renormalised, logprobs)

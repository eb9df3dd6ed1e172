"""Summing the gradient over the learner processes."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import nn


def sum_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Give every process the sum of all processes' gradients, in one exchange; where none has one, none is made.

    The parts of a step are already weighted as parts of the whole, so it is a sum and not a mean.
    """
    members = list(parameters)
    flat = torch.cat(
        [
            torch.zeros_like(p, dtype=torch.float32).flatten() if p.grad is None else p.grad.float().flatten()
            for p in members
        ]
        + [members[0].new_tensor([float(any(p.grad is not None for p in members))], dtype=torch.float32)]
    )
    dist.all_reduce(flat)
    if not flat[-1].item():
        return
    begin = 0
    for parameter in members:
        end = begin + parameter.numel()
        parameter.grad = flat[begin:end].view_as(parameter).to(parameter.dtype).clone()
        begin = end

"""A base model whose frozen weights are spread over processes, for one that fits no single device.

With FSDP2 (`torch.distributed.fsdp.fully_shard`) every process holds its part of each layer, and a layer is whole on a device
only while it computes. The adapter is small: each process holds all of it, and its gradient is summed as without
sharding. The price is that a pass needs every process: all must make equally many at the same time, and one with less to do
makes idle ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import MethodType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

from osmosis_trainer.learner.logprobs import token_logprobs
from osmosis_trainer.learner.packs import MicroBatch
from osmosis_trainer.learner.passes import WholePasses
from osmosis_trainer.learner.recompute import decoder_layers


class ShardedPasses(WholePasses):
    """Passes of a causal model whose frozen weights are spread over all processes of the default group.

    Made by all of them together: takes the model's weights, on the CPU, to `device` layer by layer, and leaves there this
    process's part. `whole` are the parameters that every process keeps. Raises UnsupportedModelError for a model without a
    list of layers.
    """

    in_step = True

    def __init__(self, base: Any, device: torch.device, whole: Iterable[nn.Parameter]) -> None:
        super().__init__(base)
        kept = set(whole)
        for parameter in kept:
            parameter.data = parameter.data.to(device)
        mesh = init_device_mesh(device.type, (dist.get_world_size(),))
        for layer in decoder_layers(base.base_model):
            fully_shard(layer, mesh=mesh, ignored_params=kept)
        # Embeddings and head are one group, for they may be one tensor: whole from the beginning of a pass to its end.
        fully_shard(base, mesh=mesh, ignored_params=kept)
        base.token_logprobs = MethodType(token_logprobs, base)
        register_fsdp_forward_method(base, "token_logprobs")
        self._device = device

    def logprobs(self, batch: MicroBatch, temperature: float) -> tuple[Tensor, Tensor]:
        """See `token_logprobs`; to be called by all processes."""
        found: tuple[Tensor, Tensor] = self._base.token_logprobs(batch, temperature)
        return found

    def agreed(self, count: int) -> int:
        """The largest `count` of all processes."""
        most = torch.tensor(count, device=self._device)
        dist.all_reduce(most, dist.ReduceOp.MAX)
        return int(most)

    def end(self) -> None:
        """Give back what a pass without gradient leaves whole."""
        self._base.reshard()


def held_bytes(model: nn.Module) -> int:
    """Bytes of the frozen weights that this process holds now."""
    frozen = [p.detach() for p in model.parameters() if not p.requires_grad]
    local: list[Any] = [p.to_local() if hasattr(p, "to_local") else p for p in frozen]
    return sum(part.untyped_storage().nbytes() for part in local)

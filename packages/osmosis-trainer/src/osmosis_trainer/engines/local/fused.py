"""Llama-shaped decoders (Llama, Mistral, Qwen2, Qwen3) without module overhead.

A small model spends most of its sampling time in Python: a transformers decoder layer with PEFT makes about 120 tensor
calls per token. Here one layer makes about 20: projections that read the same input are one matrix, rotary embedding is
three calls on queries and keys together, keys and values are written in place, and an adapter that all rows of a pass use
is added to a copy of the weights where these are small. `check` compares against the model's own forward when the engine
loads, so an architecture that differs in any detail is refused, not approximated.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from osmosis_trainer.engines.local.adapters import LoraWeights
from osmosis_trainer.engines.local.cache import KeyValueCache
from osmosis_trainer.engines.local.expert_adapters import token_rows
from osmosis_trainer.engines.local.forward import Pass
from osmosis_trainer.learner.attention_masks import sliding_window

FAMILIES = frozenset({"llama", "mistral", "qwen2", "qwen3"})

# Up to this many elements (4 MiB) a matrix is kept transposed on the CPU: products with a few rows take half the time.
_TRANSPOSED = 2**20
# Up to this many elements (16 MiB) in all layers, adapter versions get copies of the weights with their matrices added.
_MERGED = 2**22

# Down- and up-projections of one fused linear: [in, sum of ranks], [sum of ranks, out].
FusedLora = tuple[Tensor, Tensor]
# Per adapter group of a pass: fused matrices by (layer, place), rows that use them (None: all).
LoraGroups = list[tuple[list["LayerLora"], Tensor | None]]


@dataclass(slots=True)
class LayerWeights:
    """One decoder layer, fused; matrices are [in, out]."""

    norm_in: Tensor
    qkv: Tensor
    qkv_bias: Tensor | None
    head_norm: Tensor | None
    out: Tensor
    out_bias: Tensor | None
    norm_mlp: Tensor
    gate_up: Tensor
    down: Tensor


@dataclass(slots=True)
class LayerLora:
    """The adapter's share of one decoder layer; None where the adapter leaves a linear alone."""

    qkv: FusedLora | None
    out: FusedLora | None
    gate_up: FusedLora | None
    down: FusedLora | None


def supports(config: Any, max_context: int) -> bool:
    """Whether this decoder can run models of this config (the weights still have to pass the load-time check)."""
    rope = getattr(config, "rope_parameters", None) or {}
    layer_types = set(getattr(config, "layer_types", None) or ["full_attention"])
    window = sliding_window(config)
    return (
        config.model_type in FAMILIES
        and getattr(config, "hidden_act", "") == "silu"
        and rope.get("rope_type", "default") in ("default", "linear", "llama3", "yarn")
        and layer_types == {"full_attention"}
        and (window is None or window >= max_context)
        and not getattr(config, "mlp_bias", False)
    )


class FusedDecoder:
    """Runs passes over fused copies of a base model's weights; the copies are made once, adapters are added on top."""

    name = "fused"

    def __init__(self, model: Any, max_context: int) -> None:
        config = model.config
        self.heads: int = config.num_attention_heads
        self.kv_heads: int = config.num_key_value_heads
        self.head_dim: int = getattr(config, "head_dim", None) or config.hidden_size // self.heads
        self.eps: float = config.rms_norm_eps
        decoder = model.model
        self.embedding: Tensor = decoder.embed_tokens.weight.detach()
        self.norm: Tensor = decoder.norm.weight.detach()
        head = model.get_output_embeddings()
        self.head: Tensor = _by_input(head.weight)
        self.head_bias: Tensor | None = None if head.bias is None else head.bias.detach()
        # In single precision the norms' weights are multiplied into the matrices that read them: fewer calls per layer.
        self.folded = self.embedding.dtype == torch.float32
        self.scaling: float = decoder.layers[0].self_attn.scaling
        with torch.no_grad():
            self.layers = [self._fuse(layer) for layer in decoder.layers]
            elements = sum(m.numel() for w in self.layers for m in (w.qkv, w.out, w.gate_up, w.down))
            self.merges = self.folded and elements <= _MERGED
            positions = torch.arange(max_context, device=self.embedding.device)[None]
            cos, sin = decoder.rotary_emb(self.embedding[:1, None], positions)
        half = self.head_dim // 2
        self.cos = cos[0]
        self.sin = torch.cat([-sin[0, :, :half], sin[0, :, half:]], -1)

    def _fuse(self, layer: Any) -> LayerWeights:
        attention, mlp = layer.self_attn, layer.mlp
        parts = [attention.q_proj, attention.k_proj, attention.v_proj]
        bias = None if parts[0].bias is None else torch.cat([part.bias for part in parts])
        head_norm = None
        if hasattr(attention, "q_norm"):
            queries = attention.q_norm.weight.expand(self.heads, -1)
            keys = attention.k_norm.weight.expand(self.kv_heads, -1)
            head_norm = torch.cat([queries, keys])
        norm_in, norm_mlp = (
            layer.input_layernorm.weight.detach(),
            layer.post_attention_layernorm.weight.detach(),
        )
        qkv = torch.cat([part.weight for part in parts])
        gate_up = torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight])
        return LayerWeights(
            norm_in=norm_in,
            qkv=_by_input(qkv * norm_in if self.folded else qkv),
            qkv_bias=bias,
            head_norm=head_norm,
            out=_by_input(attention.o_proj.weight),
            out_bias=None if attention.o_proj.bias is None else attention.o_proj.bias.detach(),
            norm_mlp=norm_mlp,
            gate_up=_by_input(gate_up * norm_mlp if self.folded else gate_up),
            down=_by_input(mlp.down_proj.weight),
        )

    def logits(self, batch: Pass, cache: KeyValueCache) -> Tensor:
        """See `Decoder.logits`."""
        with torch.inference_mode():
            return self._logits(batch, cache)

    def _logits(self, batch: Pass, cache: KeyValueCache) -> Tensor:
        n, w = batch.ids.shape
        layers, groups = self._layers(batch.adapters, w)
        x = functional.embedding(batch.ids.reshape(-1), self.embedding)
        # The bin column lies outside the rotary table; its keys are never read, so any position will do.
        columns = batch.columns.reshape(-1)
        place = columns.clamp(max=self.cos.shape[0] - 1)
        cos, sin = self.cos[place][:, None], self.sin[place][:, None]
        mask = torch.arange(batch.span, device=x.device) <= batch.columns[:, None, :, None]
        if w == 1 and x.device.type == "cpu":
            # [n * kv_heads, 1, span], to be added to the scores.
            closed = x.new_zeros(n, batch.span).masked_fill_(~mask.view(n, -1), float("-inf"))
            mask = closed.repeat_interleave(self.kv_heads, 0)[:, None]
        slots = torch.arange(n, device=x.device) if batch.slots is None else batch.slots
        where = (slots[:, None].expand(n, w), slice(None), batch.columns)
        for index, layer in enumerate(layers):
            lora = [(compiled[index], rows) for compiled, rows in groups]
            h = self._norm(x, layer.norm_in)
            qkv = _product(h, layer.qkv, layer.qkv_bias)
            for part, rows in lora:
                _add_lora(qkv, h, part.qkv, rows)
            attended = self._attend(qkv, layer, cos, sin, mask, where, index, batch, cache)
            out = _product(attended, layer.out, layer.out_bias)
            for part, rows in lora:
                _add_lora(out, attended, part.out, rows)
            x = x + out
            h = self._norm(x, layer.norm_mlp)
            gate_up = h @ layer.gate_up
            for part, rows in lora:
                _add_lora(gate_up, h, part.gate_up, rows)
            gate, up = gate_up.chunk(2, -1)
            h = functional.silu(gate).mul_(up)
            down = h @ layer.down
            for part, rows in lora:
                _add_lora(down, h, part.down, rows)
            x = x + down
        if batch.last is not None:
            x = x.view(n, w, -1)[torch.arange(n, device=x.device), batch.last]
        x = functional.rms_norm(x, self.norm.shape, self.norm, self.eps)
        return _product(x, self.head, self.head_bias)

    def _layers(
        self, adapters: list[tuple[LoraWeights | None, Tensor | None]], width: int
    ) -> tuple[list[LayerWeights], LoraGroups]:
        """The weights of a pass with `width` tokens a row, and what is to be added for groups of its rows."""
        weights, everywhere = adapters[0] if adapters else (None, None)
        if self.merges and weights is not None and everywhere is None:
            return self._merge(weights), []
        return self.layers, [
            (self._compile(weights), token_rows(rows, width))
            for weights, rows in adapters
            if weights is not None
        ]

    def _norm(self, x: Tensor, weight: Tensor | None) -> Tensor:
        """Root mean square norm over the last axis; folded weights are not applied again."""
        if self.folded:
            return x * x.square().mean(-1, keepdim=True).add_(self.eps).rsqrt_()
        return functional.rms_norm(x, x.shape[-1:], weight, self.eps)

    def _attend(
        self,
        qkv: Tensor,
        layer: LayerWeights,
        cos: Tensor,
        sin: Tensor,
        mask: Tensor,
        where: tuple[Tensor, slice, Tensor],
        index: int,
        batch: Pass,
        cache: KeyValueCache,
    ) -> Tensor:
        n, w = batch.ids.shape
        heads, kv_heads, width = self.heads, self.kv_heads, self.head_dim
        qkv = qkv.view(n * w, heads + 2 * kv_heads, width)
        qk = qkv[:, : heads + kv_heads]
        if layer.head_norm is not None:
            qk = self._norm(qk, None) * layer.head_norm
        qk = torch.addcmul(qk * cos, qk.roll(width // 2, -1), sin)
        keys, values = cache.keys[index], cache.values[index]
        keys[where] = qk[:, heads:].view(n, w, kv_heads, width)
        values[where] = qkv[:, heads + kv_heads :].view(n, w, kv_heads, width)
        if batch.slots is None:
            k, v = keys[:n, :, : batch.span], values[:n, :, : batch.span]
        else:
            k, v = keys[batch.slots, :, : batch.span], values[batch.slots, :, : batch.span]
        if w == 1:
            # One query per head: the heads that share keys become queries of one attention, nothing is repeated.
            q = qk[:, :heads].reshape(n * kv_heads, heads // kv_heads, width)
            if mask.dtype == torch.bool:
                q = q.view(n, kv_heads, heads // kv_heads, width)
                attended = functional.scaled_dot_product_attention(q, k, v, mask, scale=self.scaling)
            else:
                # On the CPU two batched products take half the time of the fused kernel for so few queries.
                keys_of_head = k.flatten(0, 1).transpose(1, 2)
                scores = torch.baddbmm(mask.expand(-1, q.shape[1], -1), q, keys_of_head, alpha=self.scaling)
                attended = torch.bmm(torch.softmax(scores, -1), v.flatten(0, 1))
            return attended.reshape(n, heads * width)
        q = qk[:, :heads].reshape(n, w, heads, width).transpose(1, 2)
        attended = functional.scaled_dot_product_attention(
            q, _repeat(k, heads // kv_heads), _repeat(v, heads // kv_heads), mask, scale=self.scaling
        )
        return attended.transpose(1, 2).reshape(n * w, heads * width)

    def _fold(self, lora: FusedLora | None, norm: Tensor) -> FusedLora | None:
        """Adapters read the same normed input as the matrices beside them."""
        return lora if lora is None or not self.folded else (lora[0] * norm[:, None], lora[1])

    def _merge(self, weights: LoraWeights) -> list[LayerWeights]:
        """Copies of the layers with an adapter version added; made once per version."""
        merged: list[LayerWeights] | None = weights.compiled.get("merged")
        if merged is None:
            merged = [
                replace(
                    layer,
                    qkv=_plus(layer.qkv, lora.qkv),
                    out=_plus(layer.out, lora.out),
                    gate_up=_plus(layer.gate_up, lora.gate_up),
                    down=_plus(layer.down, lora.down),
                )
                for layer, lora in zip(self.layers, self._compile(weights), strict=True)
            ]
            weights.compiled["merged"] = merged
        return merged

    def _compile(self, weights: LoraWeights) -> list[LayerLora]:
        """Fuse an adapter version's matrices the way the base is fused; done once per version."""
        compiled: list[LayerLora] | None = weights.compiled.get("fused")
        if compiled is None:
            compiled = []
            dtype = self.embedding.dtype
            q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
            for index, layer in enumerate(self.layers):
                attention, mlp = f"model.layers.{index}.self_attn.", f"model.layers.{index}.mlp."
                inner = layer.down.shape[0]

                def fuse(parts: list[tuple[str, int]]) -> FusedLora | None:
                    return _fuse_lora(weights, parts, dtype)

                compiled.append(
                    LayerLora(
                        qkv=self._fold(
                            fuse(
                                [
                                    (attention + "q_proj", q),
                                    (attention + "k_proj", kv),
                                    (attention + "v_proj", kv),
                                ]
                            ),
                            layer.norm_in,
                        ),
                        out=fuse([(attention + "o_proj", layer.out.shape[1])]),
                        gate_up=self._fold(
                            fuse([(mlp + "gate_proj", inner), (mlp + "up_proj", inner)]), layer.norm_mlp
                        ),
                        down=fuse([(mlp + "down_proj", layer.down.shape[1])]),
                    )
                )
            weights.compiled["fused"] = compiled
        return compiled


def _by_input(weight: Tensor) -> Tensor:
    """A linear layer's matrix [out, in] as [in, out]."""
    turned = weight.detach().T
    small = weight.device.type == "cpu" and weight.numel() <= _TRANSPOSED
    return turned.contiguous() if small else turned


def _product(x: Tensor, matrix: Tensor, bias: Tensor | None) -> Tensor:
    return x @ matrix if bias is None else torch.addmm(bias, x, matrix)


def _plus(matrix: Tensor, lora: FusedLora | None) -> Tensor:
    return matrix if lora is None else torch.addmm(matrix, *lora)


def _fuse_lora(weights: LoraWeights, parts: list[tuple[str, int]], dtype: torch.dtype) -> FusedLora | None:
    """Stack the A matrices of the parts and put their B matrices on a block diagonal."""
    present = [weights.modules.get(path) for path, _ in parts]
    if not any(pair is not None for pair in present):
        return None
    first = next(pair for pair in present if pair is not None)
    down = torch.cat([pair[0] for pair in present if pair is not None]).to(dtype)
    up = first[1].new_zeros((down.shape[0], sum(width for _, width in parts)))
    row = column = 0
    for pair, (_, width) in zip(present, parts, strict=True):
        if pair is not None:
            rank = pair[0].shape[0]
            up[row : row + rank, column : column + width] = pair[1].T
            row += rank
        column += width
    return down.T.contiguous(), up.to(dtype)


def _add_lora(y: Tensor, x: Tensor, lora: FusedLora | None, rows: Tensor | None) -> None:
    """y += (x A) B, for the given rows."""
    if lora is None:
        return
    down, up = lora
    if rows is None:
        y.addmm_(x @ down, up)
    else:
        y.index_add_(0, rows, (x[rows] @ down) @ up)


def _repeat(x: Tensor, times: int) -> Tensor:
    """[n, kv_heads, s, d] to [n, kv_heads * times, s, d], as grouped-query attention shares keys among heads."""
    if times == 1:
        return x
    n, heads, span, width = x.shape
    return x[:, :, None].expand(n, heads, times, span, width).reshape(n, heads * times, span, width)

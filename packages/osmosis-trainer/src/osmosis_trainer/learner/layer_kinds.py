"""What kinds of layers a model has, as `layer_types` of its config names them."""

from __future__ import annotations

from typing import Any

# Layers whose past is a state of fixed size instead of a column per token: linear attention, short convolutions.
RECURRENT = frozenset({"linear_attention", "conv"})
ATTENTION = frozenset({"full_attention", "sliding_attention"})


def layer_kinds(config: Any) -> list[str]:
    """The kind of each layer; models that do not say have attention everywhere."""
    return list(getattr(config, "layer_types", None) or ["full_attention"] * config.num_hidden_layers)


def is_recurrent(config: Any) -> bool:
    """Whether some layers keep a state. Rows of such a model cannot share a sequence: a state sees all before it."""
    return not RECURRENT.isdisjoint(layer_kinds(config))

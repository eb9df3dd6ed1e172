"""How much of a request fits a model's context."""

from __future__ import annotations

from collections.abc import Sequence

from osmosis_trainer.engines.protocol import SamplingParams
from osmosis_trainer.errors import ContextLengthError


def room(prompt: Sequence[int], params: SamplingParams, max_context: int) -> int:
    """New tokens that may be sampled: `max_tokens`, or less where the context ends. Raises ContextLengthError when none."""
    left = min(params.max_tokens, max_context - len(prompt))
    if not prompt or left < 1:
        raise ContextLengthError(
            f"the prompt has {len(prompt)} tokens and the model's context {max_context}; "
            "send at least one token and leave room for at least one more",
            prompt_tokens=len(prompt),
            max_tokens=params.max_tokens,
            max_context=max_context,
        )
    return left

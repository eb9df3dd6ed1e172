"""Sampling settings of an evaluation: what the config says wins, and repeated runs sample the same."""

import hashlib
from dataclasses import dataclass
from typing import Any

from osmosis_ai.worker.spec import PolicyOverrides


@dataclass(frozen=True, slots=True)
class AttemptKey:
    """Which attempt at which row a rollout is."""

    row_index: int
    run_index: int


def apply_overrides(body: dict[str, Any], overrides: PolicyOverrides) -> dict[str, Any]:
    """The request with ``temperature``, ``top_p`` and ``max_tokens`` of the config in place of the agent's."""
    body = dict(body)
    for name in ("temperature", "top_p", "max_tokens"):
        value = getattr(overrides, name)
        if value is not None:
            body[name] = value
    if overrides.max_tokens is not None:
        body.pop("max_completion_tokens", None)
    return body


def call_seed(base: int, key: AttemptKey, call: int) -> int:
    """A seed in [0, 2**31) for the ``call``-th model call of an attempt: equal for equal runs, different within one."""
    text = f"{base}:{key.row_index}:{key.run_index}:{call}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1

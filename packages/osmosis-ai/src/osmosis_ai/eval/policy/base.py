"""What the runner asks of a policy."""

from typing import Any, Protocol

from osmosis_ai.errors import OsmosisError
from osmosis_ai.rollout.controller.chat import ChatModel


class PolicyUnusableError(OsmosisError):
    """The policy did not answer the probe call; no row was evaluated."""

    default_code = "POLICY_UNUSABLE"


class EvalPolicy(ChatModel, Protocol):
    """A chat model that knows which attempt a rollout is."""

    async def preflight(self) -> None:
        """Make one small call. Raises :class:`PolicyUnusableError`."""

    def begin(self, rollout_id: str, *, row_index: int, run_index: int) -> None:
        """A rollout is about to start."""

    def tokens(self, rollout_id: str) -> int | None:
        """Tokens the rollout has spent so far; None if it made no call."""

    async def aclose(self) -> None:
        """Close connections."""


# One small question; reasoning models need some room before they say anything.
PROBE: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 256}
PROBE_HOLD_SEC = 30.0

"""What runs a rollout, whatever is behind it."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from osmosis_ai.rollout.types import RolloutSample, RolloutStatus

__all__ = ["RolloutDriver", "RolloutOutcome", "RolloutRunRequest"]


@dataclass(slots=True)
class RolloutRunRequest:
    """One rollout to run.

    ``messages`` are the initial chat messages, passed on unchanged. Timeouts are seconds; ``None`` means no limit.
    ``extra_fields`` is opaque to the rollout and ends up in its trajectory document.
    """

    messages: list[dict[str, Any]]
    label: str | None = None
    metadata: dict[str, Any] | None = None
    rollout_id: str = ""
    agent_timeout_sec: float | None = None
    grader_timeout_sec: float | None = None
    extra_fields: dict[str, Any] | None = None


@dataclass(slots=True)
class RolloutOutcome:
    """How a rollout ended: ``error`` is a category or a reason, set unless ``status`` is ``success``."""

    status: RolloutStatus
    sample: RolloutSample | None = None
    error: str | None = None
    rollout_id: str | None = None


class RolloutDriver(ABC):
    """Runs rollouts one at a time or many at once; ``run`` may be called concurrently."""

    @abstractmethod
    async def run(self, request: RolloutRunRequest) -> RolloutOutcome:
        """Run one rollout to its end."""

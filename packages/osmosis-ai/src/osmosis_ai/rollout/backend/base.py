"""The contract of an execution backend."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from osmosis_ai.rollout.types.execution import ExecutionRequest, ExecutionResult

ResultCallback = Callable[[ExecutionResult], Awaitable[None]]


class ExecutionBackend(ABC):
    """Runs workflows and graders. Only :meth:`execute` is required; the rest reports what a backend cannot do."""

    @abstractmethod
    async def execute(
        self,
        request: ExecutionRequest,
        on_workflow_complete: ResultCallback,
        on_grader_complete: ResultCallback | None = None,
    ) -> None:
        """Run one rollout to its end.

        ``on_workflow_complete`` is awaited before grading starts, ``on_grader_complete`` (when given) after it. What a callback
        raises passes through. What user code raises becomes a failed result.
        """

    @property
    def max_concurrency(self) -> int:
        """How many rollouts run at once; 0 means no limit."""
        return 0

    @property
    def capture_final_result(self) -> bool:
        """Whether the grader result is wanted for the archive though no controller asks for it."""
        return False

    def has_capacity(self) -> bool:
        """Whether another rollout may be admitted now."""
        return True

    def rollout_status(self, rollout_id: str) -> dict[str, Any] | None:
        """``status`` and optionally ``reward`` and ``err_message`` of a rollout, or None when it is not known."""
        return None

    def cancel_rollouts(
        self, ids: Sequence[str] | None = None, prefix: str | None = None, all: bool = False
    ) -> dict[str, str]:
        """Cancel the selected rollouts; maps each id to what became of it. Empty: this backend cannot cancel."""
        return {}

    def health(self) -> dict[str, Any]:
        """The body of ``GET /health``."""
        return {"status": "ok"}

    async def shutdown(self) -> None:
        """Release what the backend holds. The server calls it once, when no rollout is left."""
        return

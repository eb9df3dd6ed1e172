"""One rollout from its admission to the removal of its trial."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from osmosis_ai.rollout.backend.base import ResultCallback
from osmosis_ai.rollout.context import RolloutContext
from osmosis_ai.rollout.types.enums import RolloutStatus
from osmosis_ai.rollout.types.execution import ExecutionResult

TRIAL_NAME_PREFIX = "trial-"


def trial_name(rollout_id: str) -> str:
    """The name of the rollout's trial, which is also the name of its folder."""
    return TRIAL_NAME_PREFIX + rollout_id


def _new_future() -> "asyncio.Future[None] | None":
    try:
        return asyncio.get_running_loop().create_future()
    except RuntimeError:
        return None


@dataclass(eq=False)
class PendingTrial:
    """What is known of a rollout that has not ended.

    ``workflow_complete_called`` and ``grader_complete_called`` are set once that callback was acknowledged; ``workflow_result``
    is what the first one reports, kept to report the same again. ``task`` runs the trial, from the moment it was submitted.
    ``owner`` is the task that executes the rollout, and ``context`` is told how far it is. ``done`` is set when the end of the trial was reported (None when made
    outside an event loop). ``preserve_trial`` keeps the trial's folder for inspection.
    """

    on_workflow_complete: ResultCallback
    on_grader_complete: ResultCallback | None = None
    workflow_complete_called: bool = False
    workflow_result: ExecutionResult | None = None
    grader_complete_called: bool = False
    cancel_requested: bool = False
    label: str | None = None
    preserve_trial: bool = False
    started: bool = False
    grading: bool = False
    api_key: str | None = None
    task: "asyncio.Future[Any] | None" = None
    done: "asyncio.Future[None] | None" = field(default_factory=_new_future)
    owner: "asyncio.Task[Any] | None" = None
    context: RolloutContext | None = None

    @property
    def cancelled(self) -> bool:
        """Whether the rollout was cancelled, on request or with its owner: nothing of it is reported any more."""
        return self.cancel_requested or (self.owner is not None and self.owner.cancelling() > 0)

    @property
    def reported(self) -> bool:
        """Whether the end of the trial was reported."""
        return self.done is not None and self.done.done()

    async def reached(self, status: RolloutStatus) -> None:
        """The trial has reached this status."""
        if self.context is not None:
            await self.context.set_status(status)

    def set_reported(self) -> None:
        """The end of the trial was reported."""
        if self.done is not None and not self.done.done():
            self.done.set_result(None)

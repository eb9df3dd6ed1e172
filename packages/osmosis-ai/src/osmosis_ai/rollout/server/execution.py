"""Executing one rollout, however its controller learns the result."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from osmosis_ai.rollout.backend.base import ExecutionBackend
from osmosis_ai.rollout.context import RolloutContext, RolloutProgress
from osmosis_ai.rollout.server.polling import PolledRollout
from osmosis_ai.rollout.trajectory.report import TrajectoryReport
from osmosis_ai.rollout.types.enums import RolloutStatus
from osmosis_ai.rollout.types.execution import ExecutionRequest, ExecutionResult
from osmosis_ai.rollout.types.protocol import PolledRolloutRequest, RolloutInitRequest

logger = logging.getLogger(__name__)

SaveTrajectory = Callable[..., Awaitable[Any]]


class Reporter(Protocol):
    """Tells the controller what became of a rollout."""

    report: TrajectoryReport | None

    async def completion(self, result: ExecutionResult) -> None:
        """The workflow has ended."""

    async def grader(self, result: ExecutionResult) -> None:
        """The grading has ended."""

    async def crashed(self) -> None:
        """The backend, or one of the other two methods, raised."""


class PollReporter:
    """Leaves the result where polls find it."""

    report: TrajectoryReport | None = None  # a poll carries none

    def __init__(self, rollout: PolledRollout, *, graded: bool) -> None:
        self._rollout = rollout
        self._graded = graded
        self._completion: ExecutionResult | None = None

    async def completion(self, result: ExecutionResult) -> None:
        """Without grading this is the end."""
        self._completion = result
        if self._graded:
            self._rollout.status_changed(RolloutStatus.GRADING)
        else:
            self._rollout.end(result)

    async def grader(self, result: ExecutionResult) -> None:
        """A failed workflow stays what it is; a sample that only the grading has is added to it."""
        completion = self._completion
        if completion is not None and completion.status != RolloutStatus.SUCCESS:
            sample = completion.sample if completion.sample is not None else result.sample
            result = completion.model_copy(update={"sample": sample})
        self._rollout.end(result)

    async def crashed(self) -> None:
        """The cause is in the log; the controller learns that it was not the agent."""
        self._rollout.crash("the rollout task crashed; the log of the rollout server has the cause")


async def execute_rollout(
    backend: ExecutionBackend,
    request: RolloutInitRequest | PolledRolloutRequest,
    *,
    rollout_id: str,
    llm_key: str | None,
    graded: bool,
    reporter: Reporter,
    save: SaveTrajectory,
    progress: RolloutProgress | None = None,
) -> None:
    """Execute one rollout, report it, then archive it.

    What the backend or the reporter raises is reported as a crash. ``graded`` says whether the backend is to report a grading.
    """
    results: list[ExecutionResult] = []

    async def on_workflow_complete(result: ExecutionResult) -> None:
        _stop_if_cancelled()
        results.append(result)
        await reporter.completion(result)

    async def on_grader_complete(result: ExecutionResult) -> None:
        _stop_if_cancelled()
        results.append(result)
        await reporter.grader(result)

    try:
        execution = ExecutionRequest(
            id=rollout_id,
            prompt=request.initial_messages,
            label=request.label,
            metadata=request.metadata,
            agent_timeout_sec=request.agent_timeout_sec,
            grader_timeout_sec=request.grader_timeout_sec,
        )
        with RolloutContext(request.chat_completions_url, llm_key, rollout_id, progress=progress):
            await backend.execute(execution, on_workflow_complete, on_grader_complete if graded else None)
    except (Exception, SystemExit):
        logger.exception("Rollout %s failed outside of its workflow and grader", rollout_id)
        await reporter.crashed()
    if results:
        await _archive(rollout_id, request, results, reporter.report, save)


def _stop_if_cancelled() -> None:
    """User code may swallow the cancellation of its rollout; nothing is reported of it all the same."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


async def _archive(
    rollout_id: str,
    request: RolloutInitRequest | PolledRolloutRequest,
    results: list[ExecutionResult],
    report: TrajectoryReport | None,
    save: SaveTrajectory,
) -> None:
    """Save the last result that has a sample (grader over workflow), with the last diagnostics of any."""
    with_sample = [result for result in results if result.sample is not None]
    diagnostics = [result.extra_fields for result in results if result.extra_fields is not None]
    await save(
        rollout_id=rollout_id,
        result=(with_sample or results)[-1],
        request_label=request.label,
        request_metadata=request.metadata,
        request_extra_fields=request.extra_fields,
        report=report,
        diagnostics=diagnostics[-1] if diagnostics else None,
    )

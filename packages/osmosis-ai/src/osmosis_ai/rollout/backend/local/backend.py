"""A backend that runs workflow and grader in this process and event loop."""

import copy
import logging
import time
from typing import Any

from osmosis_ai.rollout.agent_workflow import AgentWorkflow
from osmosis_ai.rollout.backend.base import ExecutionBackend, ResultCallback
from osmosis_ai.rollout.context import (
    AgentWorkflowContext,
    GraderContext,
    RolloutContext,
    get_rollout_context,
    rollout_contextvar,
)
from osmosis_ai.rollout.grader import Grader
from osmosis_ai.rollout.types.config import AgentWorkflowConfig, GraderConfig
from osmosis_ai.rollout.types.enums import RolloutStatus
from osmosis_ai.rollout.types.execution import ExecutionRequest, ExecutionResult
from osmosis_ai.rollout.types.output import coerce_output
from osmosis_ai.rollout.types.sample import RolloutSample
from osmosis_ai.rollout.utils.concurrency import ConcurrencyLimiter
from osmosis_ai.rollout.utils.deadline import run_with_deadline
from osmosis_ai.rollout.utils.errors import categorize_exception, message_of
from osmosis_ai.rollout.utils.file_artifacts import create_rollout_artifacts_dir, default_artifact_root
from osmosis_ai.rollout.utils.imports import resolve_object
from osmosis_ai.rollout.utils.rewards import validate_sample_has_reward

logger = logging.getLogger(__name__)

DEFAULT_MAX_CONCURRENT = 4
# Shorter waits for a slot are not worth a word in the timeout message.
_QUEUE_NOTICE_SEC = 0.1


class LocalBackend(ExecutionBackend):
    """Runs rollouts in this process, at most ``workflow_config.concurrency.max_concurrent`` at once.

    Without a workflow config 4 run at once; with one whose ``max_concurrent`` is None there is no limit. Every argument may
    also be a ``module:attr`` text. A slot is held until the grader callback is acknowledged.
    """

    def __init__(
        self,
        *,
        workflow: type[AgentWorkflow[Any]] | str,
        workflow_config: AgentWorkflowConfig | str | None = None,
        grader: type[Grader] | str | None = None,
        grader_config: GraderConfig | str | None = None,
    ) -> None:
        self.workflow_cls: type[AgentWorkflow[Any]] = resolve_object(workflow)
        self.workflow_config: AgentWorkflowConfig | None = resolve_object(workflow_config)
        self.grader_cls: type[Grader] | None = resolve_object(grader)
        self.grader_config: GraderConfig | None = resolve_object(grader_config)
        self.limiter = ConcurrencyLimiter(
            max_concurrent=DEFAULT_MAX_CONCURRENT
            if self.workflow_config is None
            else self.workflow_config.concurrency.max_concurrent
        )
        self.artifact_root = default_artifact_root()

    @property
    def max_concurrency(self) -> int:
        return self.limiter.max_concurrent or 0

    def health(self) -> dict[str, Any]:
        return {"status": "ok", "concurrency": self.limiter.snapshot()}

    async def execute(
        self,
        request: ExecutionRequest,
        on_workflow_complete: ResultCallback,
        on_grader_complete: ResultCallback | None = None,
    ) -> None:
        arrived = time.monotonic()
        async with self.limiter.acquire():
            result = await self.run_workflow(request, queued_sec=time.monotonic() - arrived)
            await on_workflow_complete(result)
            if on_grader_complete is None:
                return
            gradable = result.status == RolloutStatus.SUCCESS and (
                request.label is not None or request.metadata is not None
            )
            if self.grader_cls is not None and gradable:
                await on_grader_complete(await self.run_grader(request, result))
            else:
                await on_grader_complete(ExecutionResult(status=RolloutStatus.FAILURE))

    async def run_workflow(self, request: ExecutionRequest, *, queued_sec: float = 0.0) -> ExecutionResult:
        """Run the workflow and collect its sample; what user code raises becomes a failed result.

        ``queued_sec`` was spent waiting for a slot and counts against the agent's timeout. Only the construction of the
        workflow may raise: it says that the server is set up wrongly, not that this rollout failed.
        """
        config = copy.deepcopy(self.workflow_config)
        workflow = self.workflow_cls(config)
        ctx: AgentWorkflowContext[Any] = AgentWorkflowContext(
            prompt=request.prompt,
            config=config,
            metadata=request.metadata,
            artifacts_dir=await create_rollout_artifacts_dir(self.artifact_root, request.id),
        )
        rollout = get_rollout_context() or RolloutContext()
        await rollout.set_status(RolloutStatus.RUNNING)

        async def call() -> RolloutSample | None:
            with rollout:
                output = coerce_output(await workflow.run(ctx))
                if output is None:
                    return await rollout.get_sample()
            if output.messages is None:
                return None
            return RolloutSample(messages=output.messages, label=request.label, metrics=dict(output.metrics))

        try:
            sample = await run_with_deadline(
                call,
                budget_sec=_workflow_budget(request.agent_timeout_sec, queued_sec),
                message=_workflow_timeout_message(request.agent_timeout_sec, queued_sec),
            )
        except Exception as error:
            logger.warning("Workflow of rollout %s failed", request.id, exc_info=True)
            return _failure(error)
        return ExecutionResult(status=RolloutStatus.SUCCESS, sample=sample)

    async def run_grader(self, request: ExecutionRequest, result: ExecutionResult) -> ExecutionResult:
        """Grade the sample of a workflow result; without a grader the result itself comes back.

        What the grader raises becomes a failed result that keeps the sample.
        """
        grader_cls = self.grader_cls
        if grader_cls is None:
            return result
        ctx = GraderContext(
            label=request.label,
            sample=result.sample,
            metadata=request.metadata,
            artifacts_dir=await create_rollout_artifacts_dir(self.artifact_root, request.id),
        )

        async def call() -> None:
            rollout_contextvar.set(None)  # a grader runs outside of the rollout
            await grader_cls(self.grader_config).grade(ctx)
            validate_sample_has_reward(ctx.sample)

        try:
            await run_with_deadline(
                call,
                budget_sec=request.grader_timeout_sec,
                message=f"grader exceeded its {request.grader_timeout_sec}s deadline",
            )
        except Exception as error:
            logger.warning("Grader of rollout %s failed", request.id, exc_info=True)
            return _failure(error, sample=result.sample)
        return ExecutionResult(status=RolloutStatus.SUCCESS, sample=ctx.sample)


def _failure(error: Exception, *, sample: RolloutSample | None = None) -> ExecutionResult:
    return ExecutionResult(
        status=RolloutStatus.FAILURE,
        sample=sample,
        err_message=message_of(error),
        err_category=categorize_exception(error),
    )


def _workflow_budget(timeout_sec: float | None, queued_sec: float) -> float | None:
    return None if timeout_sec is None else max(0.0, timeout_sec - queued_sec)


def _workflow_timeout_message(timeout_sec: float | None, queued_sec: float) -> str:
    message = f"workflow exceeded its {timeout_sec}s deadline"
    if queued_sec >= _QUEUE_NOTICE_SEC:
        message += f" ({queued_sec:.1f}s of it queued for a free slot)"
    return message

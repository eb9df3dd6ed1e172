"""What a finished rollout means."""

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

from osmosis_ai.rollout.controller.messages import readable
from osmosis_ai.rollout.controller.store import TerminalCallbackResult
from osmosis_ai.rollout.types import GraderStatus, RolloutStatus
from osmosis_ai.rollout.types.json_safe import json_safe_mapping

ResultStatus = Literal["success", "failed", "skipped", "invalid"]


@dataclass(frozen=True, slots=True)
class RolloutResult:
    """How one rollout ended.

    ``invalid`` is a failure of infrastructure: it says nothing of the agent and must not be scored. ``reward`` is finite
    and present only with ``success``. ``sample`` is what the grader callback carried. ``duration_ms`` counts from the
    acceptance of the rollout. ``failed_in`` says which half of a ``failed`` rollout reported the failure, None when that
    is not known.
    """

    rollout_id: str
    status: ResultStatus
    reward: float | None = None
    sample: dict[str, Any] | None = None
    error_type: str | None = None
    error_message: str | None = None
    duration_ms: float = 0.0
    failed_in: Literal["agent", "grader"] | None = None


def classify(terminal: TerminalCallbackResult, *, duration_ms: float) -> RolloutResult:
    """Read the terminal event of a rollout. The first thing that went wrong names the error."""
    completion, grader = terminal.completion, terminal.grader
    sample = None
    if grader is not None and grader.sample is not None:
        # An old server may have let NaN through in messages or metrics.
        safe, _ = json_safe_mapping(grader.sample.model_dump(mode="json", exclude={"trajectory_messages"}))
        sample = dict(safe)

    def ended(
        status: ResultStatus,
        error_type: str | None = None,
        message: str | None = None,
        reward: float | None = None,
    ) -> RolloutResult:
        return RolloutResult(terminal.rollout_id, status, reward, sample, error_type, message, duration_ms)

    if terminal.source == "timeout":
        return ended(
            "failed",
            "callback_timeout",
            (
                "the rollout server did not report a result in time; code that blocks its event loop "
                "(a call without await) also stops its time limits"
            ),
        )
    if terminal.source == "cancelled" or (
        completion is not None and completion.status == RolloutStatus.CANCELLED
    ):
        return ended("invalid", "cancelled", "the rollout was cancelled")
    agent_failed: RolloutResult | None = None
    if completion is not None and completion.status != RolloutStatus.SUCCESS:
        message = readable(completion.err_message or "the agent workflow failed without a message")
        category = _text(completion.err_category) or "workflow_failed"
        agent_failed = replace(ended("failed", category, message), failed_in="agent")
    if grader is None:
        return agent_failed or ended(
            "failed", "missing_grader_callback", "the rollout ended without a grader result"
        )
    if grader.status != GraderStatus.SUCCESS:
        if agent_failed is not None:
            return agent_failed
        # A polled result does not say which half of the rollout failed.
        unnamed = "grader_failed" if completion is not None else "rollout_failed"
        failed = ended(
            "failed",
            _text(grader.err_category) or unnamed,
            readable(grader.err_message or _ungraded(sample)),
        )
        return replace(failed, failed_in=None if completion is None else "grader")
    if grader.sample is not None and grader.sample.remove_sample:
        return ended("skipped")
    if agent_failed is not None:
        return agent_failed
    reward = grader.sample.reward if grader.sample is not None else None
    if reward is None or not math.isfinite(reward):
        return ended("failed", "missing_reward", "the grader reported success without a finite reward")
    return ended("success", reward=float(reward))


def _text(category: object) -> str | None:
    return None if category is None else str(getattr(category, "value", category))


def _ungraded(sample: dict[str, Any] | None) -> str:
    if sample is not None:
        return "the grader failed without a message"
    return (
        "no graded sample: the workflow produced no sample, the rollout has no grader, "
        "or the row has neither ground truth nor metadata"
    )

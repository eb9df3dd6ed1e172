"""From the end of a trial to the results that the controller hears."""

import logging
from collections.abc import Callable
from typing import Any

from osmosis_ai.rollout.backend.harbor.diagnostics import (
    REDACTED,
    agent_phase_failure,
    failure_payload,
    failure_phase,
    trial_exception,
)
from osmosis_ai.rollout.backend.harbor.samples import agent_metadata
from osmosis_ai.rollout.types.enums import RolloutErrorCategory, RolloutStatus
from osmosis_ai.rollout.types.execution import ExecutionResult
from osmosis_ai.rollout.types.sample import RolloutSample
from osmosis_ai.rollout.utils.errors import categorize_exception, describe_exception

logger = logging.getLogger(__name__)

type SampleOf = Callable[[], RolloutSample | None]

_VERIFIER_TIMEOUT = "VerifierTimeoutError"


def setup_failure(error: Exception, api_key: str | None) -> ExecutionResult:
    """The result when there was no trial, because of ``error``."""
    category = categorize_exception(error)
    return ExecutionResult(
        status=RolloutStatus.FAILURE,
        err_message=without_key(describe_exception(error), api_key),
        err_category=category,
        extra_fields=failure_payload(
            phase="setup", category=category, exception_type=type(error).__name__, api_key=api_key
        ),
    )


def agent_failure(result: Any, api_key: str | None) -> ExecutionResult | None:
    """The result when the agent's side of the trial failed, else None."""
    exception = agent_phase_failure(result)
    if exception is not None:
        return _of_exception(exception, result, api_key, RolloutErrorCategory.AGENT_ERROR)
    metadata = agent_metadata(result)
    if metadata.get("status") != RolloutStatus.FAILURE:
        return None
    message = metadata.get("err_message")
    return _failure(
        message if isinstance(message, str) and message else "the workflow failed",
        phase="agent",
        category=RolloutErrorCategory.AGENT_ERROR,
        result=result,
        api_key=api_key,
    )


def workflow_outcome(result: Any, sample_of: SampleOf, api_key: str | None) -> ExecutionResult:
    """How the agent's side ended; never raises for what the agent left."""
    failed = agent_failure(result, api_key)
    if failed is not None:
        return failed
    try:
        return ExecutionResult(status=RolloutStatus.SUCCESS, sample=sample_of())
    except ValueError as error:
        return _failure(
            describe_exception(error),
            phase="agent",
            category=RolloutErrorCategory.VALIDATION_ERROR,
            result=result,
            api_key=api_key,
        )


def graded_outcome(
    rollout_id: str,
    result: Any,
    sample_of: SampleOf,
    api_key: str | None,
    last_words: Callable[[], str | None] = lambda: None,
) -> ExecutionResult:
    """How the whole rollout ended; never raises for an unusable reward. ``last_words`` gives what the verifier said last.

    A failure of the agent's side comes first, then the verifier's reward, then any other failure, then the absence of
    anything that gives a reward.
    """
    failed = agent_failure(result, api_key)
    if failed is not None:
        return failed
    sample: RolloutSample | None = None
    problem: ValueError | None = None
    try:
        sample = sample_of()
    except ValueError as error:
        problem = error

    def ungraded(message: str) -> ExecutionResult:
        return _failure(
            message,
            phase="grading",
            category=RolloutErrorCategory.VALIDATION_ERROR,
            result=result,
            sample=sample,
            api_key=api_key,
        )

    verified = getattr(result, "verifier_result", None)
    exception = trial_exception(result)
    rewards = getattr(verified, "rewards", None) or {}
    if "reward" not in rewards:
        if exception is not None:
            return _of_exception(exception, result, api_key, _category_of(exception), sample, last_words())
        if verified is None:
            return ungraded(
                "no reward source: the task has no tests/ and the backend has no grader; add one of them"
            )
    if problem is not None:
        return ungraded(describe_exception(problem))
    if sample is None:
        return ungraded("no sample to reward: the agent left neither messages nor a trajectory")
    if "reward" not in rewards:
        if not rewards:
            logger.warning("Harbor verifier returned empty rewards for rollout %s", rollout_id)
        if sample.reward is not None:
            return ExecutionResult(status=RolloutStatus.SUCCESS, sample=sample)
        named = ", ".join(map(str, rewards)) or "none"
        return ungraded(f"the verifier gave no dimension named 'reward' (given: {named})")
    try:
        sample.reward = float(rewards["reward"])
    except (TypeError, ValueError, OverflowError) as error:
        sample.reward = None
        return ungraded(f"the verifier's reward {rewards['reward']!r} is no finite number: {_short(error)}")
    return ExecutionResult(status=RolloutStatus.SUCCESS, sample=sample)


def _category_of(exception: Any) -> RolloutErrorCategory:
    if getattr(exception, "exception_type", None) == _VERIFIER_TIMEOUT:
        return RolloutErrorCategory.TIMEOUT
    return RolloutErrorCategory.AGENT_ERROR


def _of_exception(
    exception: Any,
    result: Any,
    api_key: str | None,
    category: RolloutErrorCategory,
    sample: RolloutSample | None = None,
    last_words: str | None = None,
) -> ExecutionResult:
    kind = getattr(exception, "exception_type", None)
    message = getattr(exception, "exception_message", None)
    text = f"{kind}: {message}" if kind and message else str(message or kind or exception)
    return _failure(
        text if last_words is None else f"{text}; the verifier ended with: {last_words}",
        phase=failure_phase(result),
        category=category,
        exception_type=kind,
        result=result,
        sample=sample,
        api_key=api_key,
    )


def _failure(
    message: str,
    *,
    phase: str,
    category: RolloutErrorCategory,
    result: Any,
    api_key: str | None,
    exception_type: str | None = None,
    sample: RolloutSample | None = None,
) -> ExecutionResult:
    return ExecutionResult(
        status=RolloutStatus.FAILURE,
        sample=sample,
        err_message=without_key(message, api_key),
        err_category=category,
        extra_fields=failure_payload(
            phase=phase, category=category, exception_type=exception_type, result=result, api_key=api_key
        ),
    )


def without_key(message: str, api_key: str | None) -> str:
    """The text with the rollout's key taken out of it."""
    return message.replace(api_key, REDACTED) if api_key else message


def _short(error: Exception) -> str:
    return type(error).__name__ if isinstance(error, ValueError) else str(error)

"""Bodies of the two callbacks, and of the answer to a poll."""

import json
import logging
from typing import Any

from osmosis_ai.rollout.types.enums import GraderStatus, RolloutStatus
from osmosis_ai.rollout.types.execution import ExecutionResult
from osmosis_ai.rollout.types.protocol import (
    GraderCompleteRequest,
    RolloutCompleteRequest,
    RolloutResultResponse,
)
from osmosis_ai.rollout.types.sample import RolloutSample

logger = logging.getLogger(__name__)

INTERNAL_ERROR = ExecutionResult(status=RolloutStatus.FAILURE, err_message="Internal server error")
UNGRADED = ExecutionResult(status=RolloutStatus.FAILURE)


def completion_payload(rollout_id: str, result: ExecutionResult) -> dict[str, Any]:
    """How the workflow ended; the sample is not part of it."""
    return RolloutCompleteRequest(
        status=result.status,
        rollout_id=rollout_id,
        err_message=_encodable(result.err_message),
        err_category=result.err_category,
    ).model_dump()


def grader_payload(rollout_id: str, result: ExecutionResult, *, minimal: bool = False) -> dict[str, Any]:
    """How the grading ended, with the sample but without its ``trajectory_messages``.

    The reward is present only where it may be trained on: after success and unless the sample is removed. ``minimal`` leaves
    out everything that user code may have filled with values JSON cannot carry.
    """
    succeeded = result.status == RolloutStatus.SUCCESS
    payload = GraderCompleteRequest(
        status=GraderStatus.SUCCESS if succeeded else GraderStatus.FAILURE,
        rollout_id=rollout_id,
        err_message=_encodable(result.err_message),
        err_category=result.err_category,
    ).model_dump()
    if result.sample is not None:
        payload["sample"] = _sample_payload(result.sample, succeeded=succeeded, minimal=minimal)
    return payload


def result_body(rollout_id: str, result: ExecutionResult, *, category: str | None = None) -> bytes:
    """The answer to a poll as JSON, under the rules of :func:`grader_payload`. ``category`` replaces the result's own."""
    body = RolloutResultResponse(
        rollout_id=rollout_id,
        status=result.status,
        err_message=_encodable(result.err_message),
        err_category=category or result.err_category,
    ).model_dump()
    if result.sample is None:
        return _encoded(body)
    succeeded = result.status == RolloutStatus.SUCCESS
    try:
        return _encoded(
            {**body, "sample": _sample_payload(result.sample, succeeded=succeeded, minimal=False)}
        )
    except (TypeError, ValueError, RecursionError) as error:
        warn_of_minimal_sample(rollout_id, error)
        return _encoded({**body, "sample": _sample_payload(result.sample, succeeded=succeeded, minimal=True)})


def warn_of_minimal_sample(rollout_id: str, error: Exception) -> None:
    """Say that a sample loses what cannot be sent."""
    logger.warning(
        "The sample of rollout %s has no JSON form (%s); sending it without messages and telemetry",
        rollout_id,
        error,
    )


def _encoded(body: dict[str, Any]) -> bytes:
    return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _sample_payload(sample: RolloutSample, *, succeeded: bool, minimal: bool) -> dict[str, Any]:
    if minimal:
        body = sample.model_dump(exclude={"trajectory_messages", "messages", "metrics", "extra_fields"})
        body.update(messages=[], metrics={}, extra_fields={}, label=_encodable(sample.label))
    else:
        body = sample.json_safe_copy().model_dump(exclude={"trajectory_messages"})
    if sample.remove_sample or not succeeded:
        body["reward"] = None
    return body


def _encodable(text: str | None) -> str | None:
    # Exception texts may quote undecodable bytes as lone surrogates, which UTF-8 cannot carry.
    return None if text is None else text.encode("utf-8", "replace").decode("utf-8")

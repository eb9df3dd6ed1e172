"""What the controller knows of a rollout's model calls; it travels in the acknowledgement of a callback."""

import logging
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from osmosis_ai.rollout.trajectory.atif import FiniteFloat

logger = logging.getLogger(__name__)


class LlmCallMetrics(BaseModel):
    """One successful policy call: token counts, ids, log-probabilities (natural log, one per completion token) and cost."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    cost_usd: FiniteFloat | None = None
    prompt_token_ids: list[int] | None = None
    completion_token_ids: list[int] | None = None
    logprobs: list[FiniteFloat] | None = None
    model_name: str | None = None
    extra: dict[str, Any] | None = None


class SampleReport(BaseModel):
    """The calls of one sample in the order they were dispatched."""

    model_name: str | None = None
    llm_call_metrics: list[LlmCallMetrics] = Field(default_factory=list)
    final_metrics: dict[str, Any] | None = None


class TrajectoryReport(BaseModel):
    """Sample reports by an arbitrary key; a rollout has one sample, so one entry is expected."""

    model_name: str | None = None
    samples: dict[str, SampleReport] = Field(default_factory=dict)


def report_from_response(response: Any) -> TrajectoryReport | None:
    """The report in the ``trajectory`` key of an acknowledgement's JSON body, or None when there is none that can be read."""
    try:
        body = response.json()
    except Exception:  # any 2xx acknowledges; a body is optional and need not be JSON
        return None
    if not isinstance(body, dict) or body.get("trajectory") is None:
        return None
    try:
        return TrajectoryReport.model_validate(body["trajectory"])
    except ValidationError as error:
        logger.warning(
            "Ignoring a malformed trajectory report in the acknowledgement of a callback: %s", error
        )
        return None

"""What a backend is asked to do and what comes of it."""

from typing import Any

from pydantic import BaseModel, Field

from osmosis_ai.rollout.types.deferred import built_on_first_use
from osmosis_ai.rollout.types.enums import RolloutErrorCategory, RolloutStatus
from osmosis_ai.rollout.types.protocol import RolloutId, TimeoutSec
from osmosis_ai.rollout.types.sample import MessageDict, RolloutSample


@built_on_first_use
class ExecutionRequest(BaseModel, defer_build=True):
    """One rollout to execute. Timeouts are seconds; None is unbounded, 0 or less is already over."""

    id: RolloutId
    prompt: list[MessageDict]
    label: str | None = None
    metadata: dict[str, Any] | None = None
    agent_timeout_sec: TimeoutSec | None = None
    grader_timeout_sec: TimeoutSec | None = None


@built_on_first_use
class ExecutionResult(BaseModel, defer_build=True):
    """How the workflow or the grading ended. ``extra_fields`` are diagnostics for the rollout's folder, not for the wire."""

    status: RolloutStatus
    sample: RolloutSample | None = None
    err_message: str | None = None
    err_category: RolloutErrorCategory | None = None
    extra_fields: dict[str, Any] | None = Field(default=None)

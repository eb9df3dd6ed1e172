"""States and error categories of the rollout protocol."""

from enum import StrEnum


class RolloutStatus(StrEnum):
    """State of a rollout, as a status answer or a completion callback names it."""

    QUEUED = "queued"
    RUNNING = "running"
    GRADING = "grading"
    SUCCESS = "success"
    FAILURE = "failure"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"


class GraderStatus(StrEnum):
    """State of a grading, as a grader callback names it."""

    PENDING = "pending"
    SUCCESS = "success"
    FAILURE = "failure"


class RolloutErrorCategory(StrEnum):
    """Why a rollout failed."""

    TIMEOUT = "timeout"
    VALIDATION_ERROR = "validation_error"
    HTTP_ERROR = "http_error"
    AGENT_ERROR = "agent_error"

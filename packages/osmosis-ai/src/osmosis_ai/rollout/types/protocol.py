"""Bodies of the rollout protocol: generations A and B (callbacks) and C (the result is polled)."""

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, Field

from osmosis_ai.rollout.types.deferred import built_on_first_use
from osmosis_ai.rollout.types.enums import GraderStatus, RolloutErrorCategory, RolloutStatus
from osmosis_ai.rollout.types.sample import MessageDict, RolloutSample
from osmosis_ai.rollout.utils.identifiers import ensure_single_path_segment

type RolloutId = Annotated[
    str, AfterValidator(lambda value: ensure_single_path_segment(value, label="rollout_id"))
]
type TimeoutSec = Annotated[float, Field(allow_inf_nan=False)]


POLLING_LEASE_HEADER = "X-Osmosis-Rollout-Lease"


def _fits_in_a_header(key: str) -> str:
    if not (key.isascii() and key.isprintable()):
        raise ValueError("a key must be printable ASCII: it travels in a header")
    return key


type ApiKey = Annotated[str, AfterValidator(_fits_in_a_header)]


@built_on_first_use
class RolloutInitRequest(BaseModel, defer_build=True):
    """``POST /rollout``. Unknown fields are ignored: newer controllers send more.

    ``chat_completions_url`` is a base to which clients append ``/chat/completions``. ``llm_api_key`` is the key for it and
    falls back to ``controller_api_key``, which authenticates the callbacks. A timeout of 0 or less is already over; None is
    unbounded. Without ``grader_callback_url`` nothing is graded unless the backend keeps the result itself.
    """

    initial_messages: list[MessageDict]
    chat_completions_url: str
    completion_callback_url: str
    grader_callback_url: str | None = None
    rollout_id: RolloutId | None = None
    label: str | None = None
    metadata: dict[str, Any] | None = None
    controller_api_key: ApiKey | None = None
    llm_api_key: Annotated[ApiKey, Field(min_length=1)] | None = None
    agent_timeout_sec: TimeoutSec | None = None
    grader_timeout_sec: TimeoutSec | None = None
    extra_fields: dict[str, Any] | None = None


@built_on_first_use
class PolledRolloutRequest(BaseModel, defer_build=True):
    """``POST /rollout`` of a controller that polls: no callbacks, and an id that it can ask for.

    With ``grade`` false the result is that of the workflow. The other fields mean what they mean in
    :class:`RolloutInitRequest`; ``llm_api_key`` is the only key.
    """

    rollout_id: RolloutId
    initial_messages: list[MessageDict]
    chat_completions_url: str
    grade: bool = True
    label: str | None = None
    metadata: dict[str, Any] | None = None
    llm_api_key: Annotated[ApiKey, Field(min_length=1)] | None = None
    agent_timeout_sec: TimeoutSec | None = None
    grader_timeout_sec: TimeoutSec | None = None
    extra_fields: dict[str, Any] | None = None


@built_on_first_use
class PolledRolloutResponse(BaseModel, defer_build=True):
    """The answer to an accepted polled rollout. Each poll waits up to ``result_wait_timeout_sec`` for news and renews the
    lease; a rollout that nobody asks for within ``polling_lease_timeout_sec`` is cancelled."""

    rollout_id: str
    status: RolloutStatus = RolloutStatus.QUEUED
    polling_lease_token: str
    result_wait_timeout_sec: float
    polling_lease_timeout_sec: float


@built_on_first_use
class RolloutResultResponse(BaseModel, defer_build=True):
    """``GET /rollout/{rollout_id}/result``: where the rollout is, or how it ended.

    ``err_category`` is an error category, ``lease_expired`` or ``internal_error``.
    """

    rollout_id: str
    status: RolloutStatus
    sample: dict[str, Any] | None = None
    err_message: str | None = None
    err_category: str | None = None


@built_on_first_use
class RolloutInitResponse(BaseModel, defer_build=True):
    """The answer to an accepted rollout; it carries nothing."""


@built_on_first_use
class RolloutCompleteRequest(BaseModel, defer_build=True):
    """The completion callback: how the workflow ended, without its sample."""

    status: RolloutStatus
    rollout_id: RolloutId | None = None
    extra_fields: dict[str, Any] | None = None
    err_message: str | None = None
    err_category: RolloutErrorCategory | None = None


@built_on_first_use
class GraderInitRequest(BaseModel, defer_build=True):
    """A grading handed to a remote grader. The type is part of the protocol; nothing here sends it."""

    sample: RolloutSample
    completion_callback_url: str
    rollout_id: RolloutId | None = None
    extra_fields: dict[str, Any] | None = None
    controller_api_key: str | None = None


@built_on_first_use
class GraderInitResponse(BaseModel, defer_build=True):
    """The answer of a remote grader; it carries nothing."""


@built_on_first_use
class GraderCompleteRequest(BaseModel, defer_build=True):
    """The grader callback: the sample with its reward."""

    status: GraderStatus
    rollout_id: RolloutId | None = None
    sample: RolloutSample | None = None
    err_message: str | None = None
    err_category: RolloutErrorCategory | None = None


@built_on_first_use
class RolloutStatusResponse(BaseModel, defer_build=True):
    """``GET /rollout/{rollout_id}/status``; ``unknown`` for rollouts the backend does not track."""

    rollout_id: str
    status: RolloutStatus
    reward: float | None = None
    err_message: str | None = None


@built_on_first_use
class CancelRolloutsRequest(BaseModel, defer_build=True):
    """``POST /rollout/cancel``: exactly one of ``ids``, ``prefix`` (the empty one matches everything) and ``all``."""

    ids: list[str] | None = None
    prefix: str | None = None
    all: bool = False


@built_on_first_use
class CancelRolloutsResponse(BaseModel, defer_build=True):
    """What became of each matched rollout: ``cancelled_queued``, ``cancelled_running`` or ``not_found``."""

    dispositions: dict[str, str]

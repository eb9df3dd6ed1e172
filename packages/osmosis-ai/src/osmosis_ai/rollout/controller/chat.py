"""What answers the model calls of rollouts."""

from contextvars import ContextVar
from typing import Any, Protocol

from osmosis_ai.errors import OsmosisError

# Set while a `ChatModel` completes: the client repeats a request whose answer it never got (OpenAI clients say so in
# `x-stainless-retry-count`). Equal requests without it are wanted twice.
is_client_retry: ContextVar[bool] = ContextVar("is_client_retry", default=False)


class ChatError(OsmosisError):
    """A model call that cannot be answered.

    ``status`` is the HTTP status sent to the agent. ``infrastructure`` says that the policy, not the request, is at
    fault: a rollout with such an unanswered call ends ``invalid``, never with a score. OpenAI clients repeat 408, 409,
    429, 500 and 503 on their own, so pick one of those only when a repetition may help. ``detail`` replaces the message for
    clients that read only that.
    """

    default_code = "CHAT_FAILED"

    def __init__(
        self,
        message: str,
        *,
        status: int = 502,
        type: str = "api_error",
        code: str | None = None,
        infrastructure: bool = False,
        retry_after: float | None = None,
        detail: str | None = None,
    ) -> None:
        super().__init__(message, code=code)
        self.detail = message if detail is None else detail
        self.error_code = code
        self.status = status
        self.type = type
        self.infrastructure = infrastructure
        self.retry_after = retry_after

    def body(self) -> dict[str, Any]:
        """The error in the shape OpenAI clients read, with ``detail`` for everyone else."""
        return {
            "error": {"message": self.message, "type": self.type, "code": self.error_code},
            "detail": self.detail,
        }


class ChatModel(Protocol):
    """The policy behind the chat endpoint of a controller."""

    async def complete(self, rollout_id: str, body: dict[str, Any]) -> dict[str, Any]:
        """Answer one chat completion request with a ``chat.completion`` object.

        ``body`` is the request without ``stream``, ``stream_options`` and ``n``. The call is cancelled when the agent
        hangs up or the rollout ends. Raise :class:`ChatError` to refuse.
        """

    def trajectory_report(self, rollout_id: str) -> dict[str, Any] | None:
        """Usage per model call so far, for the trajectory document of the rollout; None when nothing is known."""

    def discard(self, rollout_id: str) -> None:
        """The rollout is over; nothing of it is needed any more."""


class TransientChatError(ChatError):
    """The policy cannot answer right now (unreachable, overloaded, rate limited); the same call may work later."""

    def __init__(
        self, message: str, *, status: int = 502, code: str | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message, status=status, code=code, infrastructure=True, retry_after=retry_after)

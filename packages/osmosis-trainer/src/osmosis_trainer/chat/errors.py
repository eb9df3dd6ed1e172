"""What a chat request can be refused for, in the words and codes of the OpenAI API."""

from __future__ import annotations

from typing import Any

from osmosis_trainer.errors import TrainerError


class ChatRequestError(TrainerError):
    """A request this model cannot answer as asked. `status` is the HTTP status, `code` the OpenAI error code."""

    code = "invalid_request"

    def __init__(
        self, message: str, *, code: str = "invalid_request", param: str | None = None, status: int = 400
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.param = param
        self.status = status

    def to_body(self) -> dict[str, Any]:
        """The error object OpenAI clients read."""
        kind = "invalid_request_error" if self.status < 500 and self.status != 429 else "server_error"
        if self.status == 429:
            kind = "rate_limit_error"
        if self.status == 401:
            kind = "authentication_error"
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}


class ChatTemplateError(ChatRequestError):
    """The model's chat template cannot express these messages or tools."""

    def __init__(self, message: str, *, param: str = "messages") -> None:
        super().__init__(message, code="chat_template_error", param=param)


def context_length_exceeded(prompt_tokens: int, limit: int, what: str) -> ChatRequestError:
    """The refusal of a prompt of `prompt_tokens` tokens by a limit of `limit`; `what` names the limit."""
    return ChatRequestError(
        f"the messages and tools make {prompt_tokens} tokens, but {what} {limit}; shorten the conversation or its tools",
        code="context_length_exceeded",
        param="messages",
    )

"""A model's answer, read from its tokens."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class ParseOutcome(StrEnum):
    """How reading an answer went; every value but the first two means that the answer is handed on as text."""

    TEXT = "text"
    TOOL_CALLS = "tool_calls"
    MALFORMED_CALL = "malformed_tool_call"
    UNCLOSED_CALL = "unclosed_tool_call"
    UNKNOWN_TOOL = "unknown_tool"
    UNCLOSED_REASONING = "unclosed_reasoning"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One function call; `arguments` is the JSON text of an object."""

    id: str
    name: str
    arguments: str

    def to_dict(self) -> dict[str, Any]:
        """The call as OpenAI clients read it."""
        return {
            "id": self.id,
            "type": "function",
            "function": {"name": self.name, "arguments": self.arguments},
        }


@dataclass(frozen=True, slots=True)
class ParsedMessage:
    """An assistant message. `content` is None only beside tool calls; `reasoning` is what stood in a think block."""

    content: str | None
    reasoning: str | None
    tool_calls: tuple[ToolCall, ...]
    outcome: ParseOutcome

    def to_message(self) -> dict[str, Any]:
        """The message as OpenAI clients read it."""
        message: dict[str, Any] = {"role": "assistant", "content": self.content}
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        if self.tool_calls:
            message["tool_calls"] = [call.to_dict() for call in self.tool_calls]
        return message

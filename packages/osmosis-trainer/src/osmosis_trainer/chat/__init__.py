"""Messages and tools to tokens and back: chat templates, tool-call and reasoning parsers."""

from osmosis_trainer.chat.codec import ChatCodec
from osmosis_trainer.chat.errors import ChatRequestError, ChatTemplateError
from osmosis_trainer.chat.history import KnownTurn, TurnIndex
from osmosis_trainer.chat.parsed import ParsedMessage, ParseOutcome, ToolCall

__all__ = [
    "ChatCodec",
    "ChatRequestError",
    "ChatTemplateError",
    "KnownTurn",
    "ParseOutcome",
    "ParsedMessage",
    "ToolCall",
    "TurnIndex",
]

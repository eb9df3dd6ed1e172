"""An answer while it is being sampled: text as early as it is certain, and where a stop string ends it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from osmosis_trainer.chat.messages import Tool
from osmosis_trainer.chat.parsed import ParsedMessage
from osmosis_trainer.chat.tool_formats import held_suffix

if TYPE_CHECKING:
    from osmosis_trainer.chat.codec import CallNamer, ChatCodec

REPLACEMENT = "\ufffd"


@dataclass(frozen=True, slots=True)
class Delta:
    """Text to append to what a client has; either may be empty."""

    content: str = ""
    reasoning: str = ""

    def __bool__(self) -> bool:
        return bool(self.content or self.reasoning)


class IncrementalText:
    """Detokenises one token at a time; holds back bytes that do not make a character yet.

    Only the tokens since the last certain character, and the few before them that a decoder may look at, are decoded
    again: the cost of a token does not grow with the answer.
    """

    def __init__(self, codec: ChatCodec) -> None:
        self._codec = codec
        self._ids: list[int] = []
        self._context = 0
        self._sent = 0

    def push(self, token_id: int) -> str:
        """The text this token makes certain."""
        self._ids.append(token_id)
        before = self._codec.decode_raw(self._ids[self._context : self._sent])
        text = self._codec.decode_raw(self._ids[self._context :])
        if len(text) <= len(before) or text.endswith(REPLACEMENT):
            return ""
        self._context, self._sent = self._sent, len(self._ids)
        return text[len(before) :]

    def rest(self) -> str:
        """What is still held back, with replacement characters for unfinished ones."""
        before = self._codec.decode_raw(self._ids[self._context : self._sent])
        return self._codec.decode_raw(self._ids[self._context :])[len(before) :]


class AnswerStream:
    """Turns sampled tokens into deltas, and into the same message a plain answer would carry.

    Tool calls are never streamed in part: they are in the message that `finish` returns. `stopped` becomes True when a
    stop string is complete; the text ends before it and later tokens are ignored.
    """

    def __init__(self, codec: ChatCodec, offered: Sequence[Tool] = (), stops: Sequence[str] = ()) -> None:
        self._codec = codec
        self._offered = offered
        self._stops = tuple(stops)
        self._pieces = IncrementalText(codec)
        self._text = ""
        self._reasoning_sent = 0
        self._content_sent = 0
        self.stopped = False

    def push(self, token_id: int) -> Delta:
        """Take the next token; the delta holds what has become certain."""
        if self.stopped or token_id in self._codec.stop_ids:
            return Delta()
        self._grow(self._pieces.push(token_id))
        certain = self._text if self.stopped else self._text[: len(self._text) - self._held_by_stops()]
        split = self._codec.split_growing(certain, bool(self._offered))
        return self._delta(split.reasoning or "", split.rest.rstrip())

    def finish(self, name_call: CallNamer | None = None) -> tuple[ParsedMessage, Delta]:
        """The whole message and the text of it that no delta carried yet."""
        if not self.stopped:
            self._grow(self._pieces.rest())
        message = self._codec.parse_text(self._text, self._offered, name_call=name_call)
        return message, self._delta(message.reasoning or "", message.content or "")

    def _grow(self, piece: str) -> None:
        start = len(self._text)
        self._text += piece
        found = [
            at for stop in self._stops if (at := self._text.find(stop, max(0, start - len(stop) + 1))) >= 0
        ]
        if piece and found:
            self._text = self._text[: min(found)]
            self.stopped = True

    def _held_by_stops(self) -> int:
        return max((held_suffix(self._text, stop) for stop in self._stops), default=0)

    def _delta(self, reasoning: str, content: str) -> Delta:
        delta = Delta(content[self._content_sent :], reasoning[self._reasoning_sent :])
        self._reasoning_sent = max(self._reasoning_sent, len(reasoning))
        self._content_sent = max(self._content_sent, len(content))
        return delta

"""Messages and tools to tokens, and a model's tokens to a message."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from osmosis_trainer.chat.history import KnownTurn
from osmosis_trainer.chat.messages import Tool, normalise_messages, normalise_tools, tool_names
from osmosis_trainer.chat.parsed import ParsedMessage, ParseOutcome, ToolCall
from osmosis_trainer.chat.reasoning import Split, split_growing, split_reasoning
from osmosis_trainer.chat.template import ChatTemplate
from osmosis_trainer.chat.tool_formats import Reading

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

CallNamer = Callable[[int], str]
"""Gives the id of an answer's n-th tool call: hex digits of which a family takes as many as it can."""


class ChatCodec:
    """The two directions between chat and tokens for one tokenizer.

    `stop_ids` are the tokens that end an answer. All methods raise ChatRequestError for what the model's template
    cannot express; reading an answer never fails, it has an outcome.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        self.tokenizer = tokenizer
        self.template = ChatTemplate(tokenizer)
        self.stop_ids = self.template.stop_ids

    def render(self, messages: Any, tools: Any = ()) -> list[int]:
        """The prompt of a conversation, up to where the assistant is to speak."""
        return self.template.ids(
            self.template.text(normalise_messages(messages), normalise_tools(tools), generate=True)
        )

    def extend(self, messages: Any, tools: Any, known: KnownTurn | None) -> list[int]:
        """The prompt of a conversation that begins with the recorded turn `known`: its exact ids, then the new messages.

        The new messages are rendered together and nothing of the recorded turn is rendered again. The end-of-turn token
        is the sampled one; it is added only when the answer was cut off before it. Without `known` this is `render`.
        """
        if known is None:
            return self.render(messages, tools)
        after = self.template.text_after_answer(
            normalise_messages(messages), normalise_tools(tools), known.message_count
        )
        # The end-of-turn token is tokenised along: text that follows it is split as it would be in a full rendering.
        tail = self.template.ids(after)
        ended = bool(known.token_ids) and known.token_ids[-1] in self.stop_ids
        return [*known.token_ids, *(tail[1:] if ended else tail)]

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of sampled tokens, marks included, without the token that ended the answer."""
        return self.decode_raw(token_ids[:-1] if token_ids and token_ids[-1] in self.stop_ids else token_ids)

    def decode_raw(self, token_ids: Sequence[int]) -> str:
        """The text of any tokens, every mark included."""
        return str(
            self.tokenizer.decode(
                list(token_ids), skip_special_tokens=False, clean_up_tokenization_spaces=False
            )
        )

    def parse(
        self, token_ids: Sequence[int], tools: Any = (), *, name_call: CallNamer | None = None
    ) -> ParsedMessage:
        """The message in sampled tokens; without `tools` no call is looked for."""
        return self.parse_text(self.decode(token_ids), tools, name_call=name_call)

    def parse_text(self, text: str, tools: Any = (), *, name_call: CallNamer | None = None) -> ParsedMessage:
        """The message in an answer's text: reasoning first, then tool calls, the rest is content."""
        offered = normalise_tools(tools)
        split = self.split(text)
        if not split.closed:
            return ParsedMessage(split.rest, split.reasoning, (), ParseOutcome.UNCLOSED_REASONING)
        reading = self._read(split.rest, offered)
        if reading.outcome is not ParseOutcome.TOOL_CALLS:
            return ParsedMessage(reading.content, split.reasoning, (), reading.outcome)
        ids = self._call_ids(reading, name_call or (lambda _: uuid.uuid4().hex))
        calls = tuple(
            ToolCall(call_id, call.name, json.dumps(call.arguments, ensure_ascii=False))
            for call_id, call in zip(ids, reading.calls, strict=True)
        )
        return ParsedMessage(reading.content or None, split.reasoning, calls, reading.outcome)

    def split(self, text: str) -> Split:
        """Reasoning and the rest of a whole answer."""
        return split_reasoning(text, self.template.opens_reasoning, self.template.think_marks)

    def split_growing(self, text: str, offers_tools: bool) -> Split:
        """Reasoning and content of an unfinished answer as far as they can no longer change."""
        split = split_growing(text, self.template.opens_reasoning, self.template.think_marks)
        rest = split.rest
        if offers_tools:
            rest = rest[: self.template.tool_format.safe_length(rest)].rstrip()
        return Split(split.reasoning, rest, split.closed)

    def _read(self, text: str, tools: Sequence[Tool]) -> Reading:
        if not tools:
            return Reading(ParseOutcome.TEXT, text)
        reading = self.template.tool_format.read(text, tools)
        if any(call.name not in tool_names(tools) for call in reading.calls):
            return Reading(ParseOutcome.UNKNOWN_TOOL, text)
        return reading

    def _call_ids(self, reading: Reading, namer: CallNamer) -> list[str]:
        """The calls' ids: the model's own where its family writes ids and this one is in order, else new ones."""
        length = self.template.tool_format.id_length
        ids: list[str] = []
        for i, call in enumerate(reading.calls):
            digits = namer(i)
            own = call.id or ""
            if length and len(own) == length and own.isalnum() and own.isascii() and own not in ids:
                ids.append(own)
            else:
                ids.append(digits[:length] if length else f"call_{digits[:24]}")
        return ids

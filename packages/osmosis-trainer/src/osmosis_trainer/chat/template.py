"""What a tokenizer's chat template does, found by rendering small conversations once.

Nothing here is a table of model names: where a turn ends, which marks are used and whether tools are shown at all are
read off the template itself, so that a renamed or fine-tuned model behaves like its family.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jinja2.exceptions import TemplateError

from osmosis_trainer.chat.errors import ChatTemplateError
from osmosis_trainer.chat.messages import Message, Tool
from osmosis_trainer.chat.tool_formats import (
    BareCalls,
    MistralCalls,
    NoCalls,
    TaggedCalls,
    ToolFormat,
    XmlCalls,
)
from osmosis_trainer.errors import ConfigError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

# Tokens that end an answer in some family, whatever its template shows. Each counts only where the tokenizer has it.
STOP_TOKENS = (
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<end_of_turn>",
    "<turn|>",
    "<|return|>",
    "<|call|>",
)
THINK_MARKS = ("<think>", "</think>")
# Magistral's, where the tokenizer has them.
BRACKET_THINK_MARKS = ("[THINK]", "[/THINK]")
# A message per channel, each with an end of its own: what ends an answer cannot be told by a token.
_CHANNEL = "<|channel|>"
# What templates hold of families whose calls `tool_formats` cannot read: Gemma 4, DeepSeek, GLM.
_UNREADABLE_CALLS = ("<|tool_call>", "<\uff5ctool\u2581calls\u2581begin\uff5c>", "<arg_key>")

_MARK = "zqOsmosisAnswerMarkqz"
# A private-use character that parts text which must not be read as one token; doubled it stands for itself.
_BREAK = "\U0010fffd"
_SINGLE_BREAK = re.compile(f"(?<!{_BREAK}){_BREAK}(?!{_BREAK})")
_PROBE_TOOL: Tool = {
    "type": "function",
    "function": {
        "name": "probe_tool_qz",
        "description": "A probe.",
        "parameters": {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]},
    },
}


class ChatTemplate:
    """A tokenizer's template with what is known about it.

    `think_marks` open and close the model's thoughts; `opens_reasoning` tells that the generation prompt already opened a
    think block; `tool_format` reads the calls of this family.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        if not tokenizer.chat_template:
            raise ConfigError(
                "the model's tokenizer has no chat template; serve or train an instruct or chat model"
            )
        if _CHANNEL in str(tokenizer.chat_template):
            raise ConfigError(
                f"the model's chat template splits answers into channels ({_CHANNEL}), which cannot be read here; "
                "use a model of the Qwen, Hermes, Llama, Mistral, Gemma 3 or Phi families"
            )
        self.tokenizer = tokenizer
        special = [str(token) for token in tokenizer.added_tokens_decoder.values() if token.special]
        self._forgeable = re.compile("|".join(map(re.escape, [_BREAK, *special])))
        self.stop_ids, self.stop_texts = self._find_stops()
        added = {str(token) for token in tokenizer.added_tokens_decoder.values()}
        self.think_marks = BRACKET_THINK_MARKS if added.issuperset(BRACKET_THINK_MARKS) else THINK_MARKS
        self.opens_reasoning = self._generation_prompt().rstrip().endswith(self.think_marks[0])
        self.shows_tools = self._shows([{"role": "user", "content": "u"}], "probe_tool_qz", [_PROBE_TOOL])
        self.shows_late_system = self._shows(
            [
                {"role": "user", "content": "u"},
                {"role": "assistant", "content": "a"},
                {"role": "system", "content": _MARK},
                {"role": "user", "content": "u"},
            ],
            _MARK,
        )
        self.tool_format = self._find_tool_format()

    def text(self, messages: Sequence[Message], tools: Sequence[Tool], *, generate: bool) -> str:
        """The text of normalised messages, with the generation prompt if `generate`; made for `ids`.

        Control tokens spelled out in a message (a web page that says `<|im_end|>`) are parted, so that they stay words.
        """
        if tools and not self.shows_tools:
            raise ChatTemplateError("this model's chat template has no place for tools", param="tools")
        if tools and any(mark in str(self.tokenizer.chat_template) for mark in _UNREADABLE_CALLS):
            raise ChatTemplateError(
                "this model writes tool calls in a format that cannot be read here; use it without tools, or a model of "
                "the Qwen, Hermes, Llama or Mistral families",
                param="tools",
            )
        if not self.shows_late_system and any(m["role"] == "system" for m in messages[1:]):
            raise ChatTemplateError(
                "this model's chat template takes system messages only before the first user message; "
                "send later instructions as user messages"
            )
        return self._render([self._defused(message) for message in messages], tools, generate=generate)

    def ids(self, text: str) -> list[int]:
        """Tokens of rendered text; the template's own marks, such as the turn's end, become their own tokens."""
        if _BREAK not in text:
            return list(self.tokenizer.encode(text, add_special_tokens=False))
        parts = [part.replace(_BREAK * 2, _BREAK) for part in _SINGLE_BREAK.split(text)]
        return [token for part in parts for token in self.tokenizer.encode(part, add_special_tokens=False)]

    def _defused(self, message: Message) -> Message:
        if not any(
            self._forgeable.search(message.get(field, "")) for field in ("content", "reasoning_content")
        ):
            return message

        def part(match: re.Match[str]) -> str:
            return match[0][0] + _BREAK + match[0][1:]

        fields = ("content", "reasoning_content")
        return {k: self._forgeable.sub(part, v) if k in fields else v for k, v in message.items()}

    def text_after_answer(self, messages: Sequence[Message], tools: Sequence[Tool], count: int) -> str:
        """The text that follows the answer `messages[count - 1]`, from its end-of-turn mark on, generation prompt included.

        The answer is rendered with a stand-in text, so that nothing the model wrote can be mistaken for the turn's end
        and a template that rewrites earlier answers (dropping old reasoning) changes nothing here.
        """
        mark = _MARK
        while mark in repr(messages):
            mark += "Z"
        answer = messages[count - 1]
        stand_in: Message = {"role": "assistant", "content": mark}
        if answer.get("tool_calls"):
            stand_in["tool_calls"] = [self._stand_in_call(call, mark) for call in answer["tool_calls"]]
        text = self.text([*messages[: count - 1], stand_in, *messages[count:]], tools, generate=True)
        at = text.rfind(mark)
        ends = [(text.index(stop, at), stop) for stop in self.stop_texts if at >= 0 and stop in text[at:]]
        if not ends:
            raise ChatTemplateError(
                "this model's chat template loses an earlier answer; it cannot be continued"
            )
        return text[min(ends)[0] :]

    def _stand_in_call(self, call: Message, mark: str) -> Message:
        name = call["function"]["name"]
        if any(stop in name for stop in self.stop_texts):
            name = "f"
        return {"id": call["id"], "type": "function", "function": {"name": name, "arguments": {"mark": mark}}}

    def _render(self, messages: Sequence[Message], tools: Sequence[Tool], *, generate: bool) -> str:
        try:
            return str(
                self.tokenizer.apply_chat_template(
                    list(messages), tools=list(tools) or None, add_generation_prompt=generate, tokenize=False
                )
            )
        except (TemplateError, TypeError, KeyError, ValueError) as error:
            raise ChatTemplateError(
                f"this model's chat template refuses the conversation: {error}"
            ) from error

    def _find_stops(self) -> tuple[frozenset[int], tuple[str, ...]]:
        added: dict[int, Any] = self.tokenizer.added_tokens_decoder
        text = self._render(
            [{"role": "user", "content": "u"}, {"role": "assistant", "content": _MARK}], [], generate=False
        )
        after = self.ids(text[text.rfind(_MARK) + len(_MARK) :]) if _MARK in text else []
        turn_end = next((token for token in after if token in added), None)
        known = [token for token, entry in added.items() if str(entry) in STOP_TOKENS]
        stops = {*known, *([turn_end] if turn_end is not None else [])}
        eos = self.tokenizer.eos_token_id
        if eos is not None:
            stops.add(eos)
        if not stops:
            raise ConfigError(
                "neither the tokenizer nor its chat template names a token that ends an answer; set eos_token"
            )
        texts = tuple(self.tokenizer.decode([token], skip_special_tokens=False) for token in sorted(stops))
        return frozenset(stops), texts

    def _generation_prompt(self) -> str:
        messages = [{"role": "user", "content": "u"}]
        before = self._render(messages, [], generate=False)
        return self._render(messages, [], generate=True)[len(before) :]

    def _shows(self, messages: Sequence[Message], needle: str, tools: Sequence[Tool] = ()) -> bool:
        try:
            return needle in self._render(messages, tools, generate=True)
        except ChatTemplateError:
            return False

    def _find_tool_format(self) -> ToolFormat:
        source = str(self.tokenizer.chat_template)
        if not self.shows_tools:
            return NoCalls()
        if "[TOOL_CALLS]" in source:
            return MistralCalls()
        if "<tool_call>" in source:
            return XmlCalls() if "<function=" in source else TaggedCalls()
        return BareCalls() if '"parameters": ' in source else TaggedCalls()

"""How model families write tool calls into their answers.

A format reads the calls out of an answer's text (its reasoning already taken off) and tells a stream from where on text
may be part of a call. Reading is all or nothing: one call that cannot be read makes the whole answer text, because the
half that could be read is not what the model said.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from osmosis_trainer.chat.messages import Tool
from osmosis_trainer.chat.parsed import ParseOutcome


@dataclass(frozen=True, slots=True)
class ReadCall:
    """A call as written: a name and an arguments object; `id` where the family's models write one themselves."""

    name: str
    arguments: dict[str, Any]
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """What stands in an answer: the text around the calls and the calls, or the reason why there are none."""

    outcome: ParseOutcome
    content: str
    calls: tuple[ReadCall, ...] = ()


class MalformedCallError(ValueError):
    """The text between call marks is not a call. Never leaves this module."""


class ToolFormat(Protocol):
    """One way to write tool calls."""

    id_length: int | None

    def read(self, text: str, tools: Sequence[Tool]) -> Reading:
        """The calls in `text`."""
        ...

    def safe_length(self, text: str) -> int:
        """How many characters of a growing answer are certainly not part of a call."""
        ...


def held_suffix(text: str, mark: str) -> int:
    """Length of the longest end of `text` that is a beginning of `mark`, at most all but one of its characters."""
    for length in range(min(len(mark) - 1, len(text)), 0, -1):
        if mark.startswith(text[-length:]):
            return length
    return 0


def strict_object(text: str) -> dict[str, Any]:
    """Read one JSON object; NaN and Infinity, which are not JSON, are refused."""

    def refuse(constant: str) -> None:
        raise MalformedCallError(f"{constant} is not JSON")

    try:
        value = json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise MalformedCallError(str(error)) from None
    if not isinstance(value, dict):
        raise MalformedCallError("a call is a JSON object")
    return value


def call_of(value: dict[str, Any], keys: tuple[str, ...]) -> ReadCall:
    """The call in a JSON object whose arguments stand under one of `keys`."""
    name = value.get("name")
    arguments = next((value[key] for key in keys if key in value), None)
    if not isinstance(name, str) or not name or not isinstance(arguments, dict):
        raise MalformedCallError("a call has a name and an arguments object")
    written = value.get("id")
    return ReadCall(name, arguments, written if isinstance(written, str) else None)


class TaggedCalls:
    """`<tool_call>{"name": ..., "arguments": {...}}</tool_call>`: Hermes, Qwen2.5, Qwen3 and our tiny models."""

    id_length: int | None = None
    opening, closing = "<tool_call>", "</tool_call>"

    def read(self, text: str, tools: Sequence[Tool]) -> Reading:
        """The calls between the tags; text around them is kept."""
        if self.opening not in text:
            return Reading(ParseOutcome.TEXT, text)
        around, rest, calls = [], text, []
        while self.opening in rest:
            before, _, rest = rest.partition(self.opening)
            body, closed, rest = rest.partition(self.closing)
            if not closed:
                return Reading(ParseOutcome.UNCLOSED_CALL, text)
            try:
                calls.append(self.read_body(body.strip(), tools))
            except MalformedCallError:
                return Reading(ParseOutcome.MALFORMED_CALL, text)
            around.append(before)
        around.append(rest)
        content = "\n".join(part for part in [around[0].rstrip(), *(p.strip() for p in around[1:])] if part)
        return Reading(ParseOutcome.TOOL_CALLS, content, tuple(calls))

    def read_body(self, body: str, tools: Sequence[Tool]) -> ReadCall:
        """One call from what stands between its tags."""
        return call_of(strict_object(body), ("arguments",))

    def safe_length(self, text: str) -> int:
        """Everything before the first opening tag, or before what may become one."""
        at = text.find(self.opening)
        return at if at >= 0 else len(text) - held_suffix(text, self.opening)


class XmlCalls(TaggedCalls):
    """`<tool_call><function=f><parameter=p>value</parameter></function></tool_call>`: Qwen3-Coder, Qwen3.5 and later.

    Values are text; those of parameters whose schema is not a string are read as JSON.
    """

    _function = re.compile(r"<function=([^>\n]+)>(.*)</function>", re.S)
    _parameter = re.compile(r"<parameter=([^>\n]+)>(.*?)</parameter>", re.S)

    def read_body(self, body: str, tools: Sequence[Tool]) -> ReadCall:
        """One call; raises MalformedCallError on anything that stands outside the parameters."""
        match = self._function.fullmatch(body)
        if match is None or self._parameter.sub("", match[2]).strip():
            raise MalformedCallError("a call is one function element with parameter elements")
        name = match[1].strip()
        schema = next(
            (t["function"].get("parameters") or {} for t in tools if t["function"]["name"] == name), {}
        )
        properties = schema.get("properties") or {}
        arguments = {}
        for key, value in self._parameter.findall(match[2]):
            text = value.removeprefix("\n").removesuffix("\n")
            arguments[key.strip()] = self._value(text, properties.get(key.strip()) or {})
        return ReadCall(name, arguments)

    @staticmethod
    def _value(text: str, schema: dict[str, Any]) -> Any:
        if schema.get("type") in (None, "string"):
            return text
        try:
            return strict_object(f'{{"value": {text}}}')["value"]
        except MalformedCallError:
            return text


class MistralCalls:
    """`[TOOL_CALLS][{"name": ..., "arguments": {...}}]`, and the later `[TOOL_CALLS]name[CALL_ID]id[ARGS]{...}`.

    An id that the model wrote is kept, because the results of its calls have to name it.
    """

    id_length: int | None = 9
    mark, call_id, args = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"

    def read(self, text: str, tools: Sequence[Tool]) -> Reading:
        """The calls after the mark."""
        if self.mark not in text:
            return Reading(ParseOutcome.TEXT, text)
        content, *bodies = text.split(self.mark)
        try:
            calls = [call for body in bodies for call in self._calls(body.strip())]
        except MalformedCallError:
            return Reading(ParseOutcome.MALFORMED_CALL, text)
        return Reading(ParseOutcome.TOOL_CALLS, content.rstrip(), tuple(calls))

    def _calls(self, body: str) -> list[ReadCall]:
        if self.args in body:
            head, _, arguments = body.partition(self.args)
            name, _, written = head.partition(self.call_id)
            call = {"name": name.strip(), "id": written.strip(), "arguments": strict_object(arguments)}
            return [call_of(call, ("arguments",))]
        listed = strict_object(f'{{"calls": {body}}}')["calls"]
        if not isinstance(listed, list) or not listed or not all(isinstance(item, dict) for item in listed):
            raise MalformedCallError("calls are a JSON list of objects")
        return [call_of(item, ("arguments",)) for item in listed]

    def safe_length(self, text: str) -> int:
        """Everything before the mark, or before what may become it."""
        at = text.find(self.mark)
        return at if at >= 0 else len(text) - held_suffix(text, self.mark)


class BareCalls:
    """The whole answer is `{"name": ..., "parameters": {...}}`, perhaps after `<|python_tag|>`: Llama 3.1 and later."""

    id_length: int | None = None
    tag = "<|python_tag|>"

    def read(self, text: str, tools: Sequence[Tool]) -> Reading:
        """One call, or several separated by semicolons; an answer that is no JSON object is text."""
        body = text.strip()
        tagged = body.startswith(self.tag)
        body = body.removeprefix(self.tag).strip()
        if not tagged and not body.startswith("{"):
            return Reading(ParseOutcome.TEXT, text)
        try:
            calls = [call_of(value, ("parameters", "arguments")) for value in self._objects(body)]
        except MalformedCallError:
            # An answer may well be JSON without being a call; it was meant as one if it names a function first.
            meant = tagged or re.match(r'\{\s*"name"', body) is not None
            return Reading(ParseOutcome.MALFORMED_CALL if meant else ParseOutcome.TEXT, text)
        return Reading(ParseOutcome.TOOL_CALLS, "", tuple(calls))

    def _objects(self, body: str) -> list[dict[str, Any]]:
        found, decoder, at = [], json.JSONDecoder(), 0
        while at < len(body):
            try:
                _, end = decoder.raw_decode(body, at)
            except (ValueError, RecursionError) as error:
                raise MalformedCallError(str(error)) from None
            found.append(strict_object(body[at:end]))
            rest = body[end:].lstrip()
            if rest and not rest.startswith(";"):
                raise MalformedCallError("text after a call")
            at = len(body) - len(rest.removeprefix(";").lstrip())
        return found

    def safe_length(self, text: str) -> int:
        """Nothing, while the answer may still be a call; everything, when it began as text."""
        body = text.lstrip()
        return 0 if not body or body.startswith(("{", self.tag)) or self.tag.startswith(body) else len(text)


class NoCalls:
    """A template without tools: an answer is text."""

    id_length: int | None = None

    def read(self, text: str, tools: Sequence[Tool]) -> Reading:
        """The text."""
        return Reading(ParseOutcome.TEXT, text)

    def safe_length(self, text: str) -> int:
        """All of it."""
        return len(text)

"""Reasoning first, then tool calls, the rest is content; what cannot be read stays text with an outcome."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from osmosis_trainer.chat import ChatCodec, ParseOutcome

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "multiply",
            "parameters": {
                "type": "object",
                "properties": {
                    "a": {"type": "integer"},
                    "b": {"type": "integer"},
                    "note": {"type": "string"},
                },
            },
        },
    }
]
CALL = '<tool_call>{"name": "multiply", "arguments": {"a": 6, "b": 7}}</tool_call>'


def read(
    codec: ChatCodec, text: str, tools: list[Any] = TOOLS
) -> tuple[str, str | None, str | None, list[Any]]:
    message = codec.parse(codec.template.ids(text), tools)
    calls = [(call.name, json.loads(call.arguments)) for call in message.tool_calls]
    return message.outcome.value, message.reasoning, message.content, calls


SIX_SEVEN = [("multiply", {"a": 6, "b": 7})]

TAGGED = [
    ("The answer is 42.<|im_end|>", "text", None, "The answer is 42.", []),
    (CALL + "<|im_end|>", "tool_calls", None, None, SIX_SEVEN),
    ("Let me see.\n" + CALL + "\n" + CALL + "<|im_end|>", "tool_calls", None, "Let me see.", SIX_SEVEN * 2),
    ("<think>\nhm\n</think>\n\n" + CALL, "tool_calls", "hm", None, SIX_SEVEN),
    (f"<think>maybe {CALL}</think>No.", "text", f"maybe {CALL}", "No.", []),
    (f"<think>maybe {CALL}", "unclosed_reasoning", f"maybe {CALL}", "", []),
    (CALL.replace("}}", "}"), "malformed_tool_call", None, CALL.replace("}}", "}"), []),
    (CALL.replace("7", "NaN"), "malformed_tool_call", None, CALL.replace("7", "NaN"), []),
    (
        CALL + CALL.replace("arguments", "args"),
        "malformed_tool_call",
        None,
        CALL + CALL.replace("arguments", "args"),
        [],
    ),
    (CALL.removesuffix("</tool_call>"), "unclosed_tool_call", None, CALL.removesuffix("</tool_call>"), []),
    (CALL.replace("multiply", "product"), "unknown_tool", None, CALL.replace("multiply", "product"), []),
    ("<|im_end|>", "text", None, "", []),
]


@pytest.mark.parametrize(("text", "outcome", "reasoning", "content", "calls"), TAGGED)
def test_tagged_calls(
    tiny: ChatCodec, text: str, outcome: str, reasoning: str | None, content: str | None, calls: list[Any]
) -> None:
    assert read(tiny, text) == (outcome, reasoning, content, calls)


def test_without_tools_a_call_is_text(tiny: ChatCodec) -> None:
    assert read(tiny, CALL, []) == ("text", None, CALL, [])


@pytest.mark.parametrize(
    ("text", "outcome", "content", "calls"),
    [
        ('{"name": "multiply", "parameters": {"a": 6, "b": 7}}<|eot_id|>', "tool_calls", None, SIX_SEVEN),
        (
            '<|python_tag|>{"name": "multiply", "parameters": {"a": 6, "b": 7}}<|eom_id|>',
            "tool_calls",
            None,
            SIX_SEVEN,
        ),
        (
            '{"name": "multiply", "parameters": {"a": 6, "b": 7}}; {"name": "multiply", "parameters": {"a": 6, "b": 7}}',
            "tool_calls",
            None,
            SIX_SEVEN * 2,
        ),
        (
            '{"name": "multiply", "parameters": [6]}',
            "malformed_tool_call",
            '{"name": "multiply", "parameters": [6]}',
            [],
        ),
        ('{"answer": 42}', "text", '{"answer": 42}', []),
        ("It is {42}.", "text", "It is {42}.", []),
    ],
)
def test_bare_calls(
    codec_of: Callable[[str], ChatCodec], text: str, outcome: str, content: str | None, calls: list[Any]
) -> None:
    assert read(codec_of("llama3_1"), text) == (outcome, None, content, calls)


LISTED = '[TOOL_CALLS] [{"name": "multiply", "arguments": {"a": 6, "b": 7}, "id": "abcdefgh1"}]'
NAMED = '[TOOL_CALLS]multiply[CALL_ID]abcdefgh1[ARGS]{"a": 6, "b": 7}'


@pytest.mark.parametrize("family", ["mistral", "mistral_v3"])
@pytest.mark.parametrize(
    ("text", "outcome", "reasoning", "content", "calls"),
    [
        (LISTED + "</s>", "tool_calls", None, None, SIX_SEVEN),
        (NAMED + "</s>", "tool_calls", None, None, SIX_SEVEN),
        ("Let me see." + NAMED + NAMED + "</s>", "tool_calls", None, "Let me see.", SIX_SEVEN * 2),
        ('[TOOL_CALLS]multiply[ARGS]{"a": 6, "b": 7}', "tool_calls", None, None, SIX_SEVEN),
        (f"[THINK]maybe {NAMED}[/THINK]No.</s>", "text", f"maybe {NAMED}", "No.", []),
        ("[THINK]hm[/THINK]" + LISTED, "tool_calls", "hm", None, SIX_SEVEN),
        ("[THINK]hm", "unclosed_reasoning", "hm", "", []),
        ("[TOOL_CALLS] []", "malformed_tool_call", None, "[TOOL_CALLS] []", []),
        (NAMED.replace("}", ""), "malformed_tool_call", None, NAMED.replace("}", ""), []),
        (
            NAMED.replace("multiply", "product"),
            "unknown_tool",
            None,
            NAMED.replace("multiply", "product"),
            [],
        ),
        ("It is 42.</s>", "text", None, "It is 42.", []),
    ],
)
def test_mistral_calls(
    codec_of: Callable[[str], ChatCodec],
    family: str,
    text: str,
    outcome: str,
    reasoning: str | None,
    content: str | None,
    calls: list[Any],
) -> None:
    assert read(codec_of(family), text) == (outcome, reasoning, content, calls)


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        (LISTED, ["abcdefgh1"]),
        (NAMED, ["abcdefgh1"]),
        (NAMED + NAMED, ["abcdefgh1", "1aaaaaaaa"]),
        (NAMED.replace("abcdefgh1", "call-1"), ["0aaaaaaaa"]),
        (NAMED.replace("[CALL_ID]abcdefgh1", ""), ["0aaaaaaaa"]),
    ],
)
def test_results_name_the_id_that_the_model_wrote(
    codec_of: Callable[[str], ChatCodec], text: str, ids: list[str]
) -> None:
    """Only ids that are new and of the family's shape are taken over; the prompt that follows shows them."""
    codec = codec_of("mistral")
    message = codec.parse(codec.template.ids(text), TOOLS, name_call=lambda i: f"{i}{'a' * 31}")
    assert [call.id for call in message.tool_calls] == ids
    results = [{"role": "tool", "tool_call_id": call_id, "content": "42"} for call_id in ids]
    prompt = codec.decode_raw(
        codec.render([{"role": "user", "content": "?"}, message.to_message(), *results], TOOLS)
    )
    assert all(f"[TOOL_RESULTS]{call_id}[TOOL_CONTENT]" in prompt for call_id in ids)


@pytest.mark.parametrize("family", ["hermes", "qwen2_5", "qwen3"])
def test_families_of_tagged_calls(codec_of: Callable[[str], ChatCodec], family: str) -> None:
    own_id = CALL.replace('"name"', '"id": "abcdefgh1", "name"')
    message = codec_of(family).parse(codec_of(family).template.ids(own_id + "<|im_end|>"), TOOLS)
    assert [(c.name, json.loads(c.arguments)) for c in message.tool_calls] == SIX_SEVEN
    assert message.tool_calls[0].id.startswith("call_")


@pytest.mark.parametrize("family", ["qwen3_5_think", "qwen3_6"])
def test_xml_calls_take_types_from_the_schema(codec_of: Callable[[str], ChatCodec], family: str) -> None:
    """The generation prompt of Qwen3.5 and Qwen3.6 opens the think block itself."""
    text = (
        "easy\n</think>\n\n<tool_call>\n<function=multiply>\n<parameter=a>\n6\n</parameter>\n<parameter=b>\n7\n</parameter>\n"
        "<parameter=note>\n12\nlines\n</parameter>\n</function>\n</tool_call><|im_end|>"
    )
    expected = [("multiply", {"a": 6, "b": 7, "note": "12\nlines"})]
    assert read(codec_of(family), text) == ("tool_calls", "easy", None, expected)
    broken = text.replace("</function>", "")
    assert read(codec_of(family), broken)[0] == "malformed_tool_call"


def test_tool_call_ids_are_unique_and_can_be_given(tiny: ChatCodec) -> None:
    ids = tiny.template.ids(CALL + CALL)
    random = [call.id for _ in range(20) for call in tiny.parse(ids, TOOLS).tool_calls]
    assert len(set(random)) == 40
    given = tiny.parse(ids, TOOLS, name_call=lambda i: f"{i}{'a' * 31}")
    assert [call.id for call in given.tool_calls] == ["call_0" + "a" * 23, "call_1" + "a" * 23]
    assert given.outcome is ParseOutcome.TOOL_CALLS


def test_the_answer_becomes_a_message_that_renders_back_to_its_tokens(tiny: ChatCodec) -> None:
    sampled = tiny.template.ids(CALL + "<|im_end|>")
    question = {"role": "user", "content": "6 times 7?"}
    message = tiny.parse(sampled, TOOLS).to_message()
    rendered = tiny.template.ids(
        tiny.template.text([question, {**message, "content": ""}], TOOLS, generate=False).removesuffix("\n")
    )
    assert rendered == [*tiny.render([question], TOOLS), *sampled]

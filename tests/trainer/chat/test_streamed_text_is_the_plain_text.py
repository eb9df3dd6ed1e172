"""Whatever is sampled, the deltas of a stream put together are the message of a plain answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from osmosis_trainer.chat import ChatCodec
from osmosis_trainer.chat.stream import AnswerStream

TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
]
PIECES = [
    "<tool_call>", "</tool_call>", '{"name": "f", "arguments": {}}', '{"name": "f", "parameters": {}}', "<think>",
    "</think>", "<thi", "<tool", " ", "\n", "hé", "stop", "st", "日本", "🙂", "{", ";", "<|python_tag|>",
    "[THINK]", "[/THINK]", "[THI", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "f", "{}",
]  # fmt: skip


def play(codec: ChatCodec, ids: list[int], tools: list[Any], stops: list[str]) -> tuple[str, str, Any, bool]:
    stream = AnswerStream(codec, tools, stops)
    deltas = [stream.push(token) for token in ids]
    message, last = stream.finish(lambda i: f"{i:032}")
    deltas.append(last)
    return "".join(d.content for d in deltas), "".join(d.reasoning for d in deltas), message, stream.stopped


@pytest.mark.parametrize("family", ["tiny", "llama3_1", "qwen3_5_think", "mistral"])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    pieces=st.lists(st.sampled_from(PIECES), max_size=8),
    noise=st.lists(st.integers(0, 300), max_size=6),
    with_tools=st.booleans(),
)
def test_streamed_is_plain(
    codec_of: Callable[[str], ChatCodec], family: str, pieces: list[str], noise: list[int], with_tools: bool
) -> None:
    codec = codec_of(family)
    ids = [token for token in codec.template.ids("".join(pieces)) + noise if token not in codec.stop_ids]
    tools = TOOLS if with_tools else []
    content, reasoning, message, _ = play(codec, ids, tools, [])
    plain = codec.parse(ids, tools, name_call=lambda i: f"{i:032}")
    assert message == plain
    assert (content, reasoning) == (plain.content or "", plain.reasoning or "")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pieces=st.lists(st.sampled_from(PIECES), max_size=8))
def test_a_stop_string_ends_the_text_before_it(tiny: ChatCodec, pieces: list[str]) -> None:
    text = "".join(pieces)
    content, reasoning, message, stopped = play(tiny, tiny.template.ids(text), [], ["stop", "🙂"])
    cut = min([at for stop in ("stop", "🙂") if (at := text.find(stop)) >= 0], default=len(text))
    assert stopped == (cut < len(text))
    assert message == tiny.parse_text(text[:cut])
    assert (content, reasoning) == (message.content or "", message.reasoning or "")


def test_text_arrives_as_early_as_it_is_certain(tiny: ChatCodec) -> None:
    stream = AnswerStream(tiny, TOOLS, ["END"])
    early = "".join(stream.push(token).content for token in tiny.template.ids("The answer is E"))
    assert early == "The answer is"
    more = "".join(stream.push(token).content for token in tiny.template.ids("asy <tool"))
    assert more == " Easy"

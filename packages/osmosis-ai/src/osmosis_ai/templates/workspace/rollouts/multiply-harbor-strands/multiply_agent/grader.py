"""The grader. It is a module of its own, so that grading does not load what the agent needs."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from osmosis_ai.rollout import Grader, GraderContext

NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
THOUSANDS_COMMA = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")


def final_text(messages: Sequence[Mapping[str, Any]]) -> str:
    """The text of the last assistant message; empty when it has none."""
    for message in reversed(messages):
        if message.get("role") == "assistant":
            content = message.get("content") or ""
            if isinstance(content, str):
                return content
            return " ".join(str(block.get("text", "")) for block in content if isinstance(block, Mapping))
    return ""


def last_number(text: str) -> str | None:
    """The last number in a text, without thousands separators."""
    numbers = NUMBER.findall(THOUSANDS_COMMA.sub("", text))
    return numbers[-1] if numbers else None


class MultiplyGrader(Grader):
    """Reward 1 when the last number of the final answer is the product, else 0."""

    async def grade(self, ctx: GraderContext) -> None:
        if ctx.sample is None:
            raise ValueError("the workflow produced no sample")
        answer = last_number(final_text(ctx.sample.messages))
        ctx.set_reward(1.0 if answer is not None and answer == (ctx.label or "").strip() else 0.0)

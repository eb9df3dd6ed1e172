"""The agent and its grader. This package is what goes into the sandbox of a rollout."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from strands import tool
from strands.types.exceptions import MaxTokensReachedException

from osmosis_ai.rollout import AgentWorkflow, AgentWorkflowConfig, AgentWorkflowContext, Grader, GraderContext
from osmosis_ai.rollout.integrations.agents.strands import OsmosisRolloutModel, OsmosisStrandsAgent

MAX_TURNS = 4
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
THOUSANDS_COMMA = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")


@tool
def multiply(a: int, b: int) -> int:
    """Multiply two integers."""
    return a * b


class MultiplyWorkflow(AgentWorkflow[AgentWorkflowConfig]):
    """Lets the model answer one question, with the tool at hand."""

    async def run(self, ctx: AgentWorkflowContext[AgentWorkflowConfig]) -> None:
        agent = OsmosisStrandsAgent(
            name="multiply",
            model=OsmosisRolloutModel(params={"temperature": 1.0, "max_tokens": 64}),
            tools=[multiply],
            messages=ctx.prompt,
            callback_handler=None,
        )
        try:
            await agent.invoke_async(limits={"turns": MAX_TURNS})
        except MaxTokensReachedException:
            # The model ran out of tokens in the middle of an answer. That is a bad answer, which the grader scores; it
            # is no failure of the rollout.
            pass


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


workflow_config = AgentWorkflowConfig(name="multiply-harbor-strands")

"""Multiply two numbers with a tool, using the OpenAI Agents SDK."""

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import uvicorn
from agents import MaxTurnsExceeded, ModelBehaviorError, ModelSettings, Runner, function_tool

from osmosis_ai.rollout import (
    AgentWorkflow,
    AgentWorkflowConfig,
    AgentWorkflowContext,
    ConcurrencyConfig,
    Grader,
    GraderContext,
    LocalBackend,
)
from osmosis_ai.rollout.integrations.agents.openai_agents import (
    OsmosisAgent,
    OsmosisMemorySession,
    OsmosisRolloutModel,
)
from osmosis_ai.rollout.server import create_rollout_server

MAX_TURNS = 4
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
THOUSANDS_COMMA = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")


@function_tool
def multiply(a: int, b: int) -> int:
    """Multiply two integers."""
    return a * b


class MultiplyWorkflow(AgentWorkflow[AgentWorkflowConfig]):
    """Lets the model answer one question, with the tool at hand."""

    async def run(self, ctx: AgentWorkflowContext[AgentWorkflowConfig]) -> None:
        agent = OsmosisAgent(
            name="multiply",
            model=OsmosisRolloutModel(),
            model_settings=ModelSettings(temperature=1.0, max_tokens=64),
            tools=[multiply],
        )
        session = OsmosisMemorySession()
        try:
            await Runner.run(agent, ctx.prompt, session=session, max_turns=MAX_TURNS)
        except (MaxTurnsExceeded, ModelBehaviorError):
            # The model went in circles or called a tool that does not exist. That is a bad answer, which the grader
            # scores; it is no failure of the rollout.
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


workflow_config = AgentWorkflowConfig(
    name="multiply-local-openai",
    concurrency=ConcurrencyConfig(max_concurrent=64),
)


def main() -> None:
    """Serve the rollout on the port that the platform chose."""
    backend = LocalBackend(workflow=MultiplyWorkflow, workflow_config=workflow_config, grader=MultiplyGrader)
    app = create_rollout_server(backend=backend)
    host = os.environ.get("_OSMOSIS_ROLLOUT_HOST", "0.0.0.0")
    uvicorn.run(app, host=host, port=int(os.environ.get("_OSMOSIS_ROLLOUT_PORT", "8000")))


if __name__ == "__main__":
    main()

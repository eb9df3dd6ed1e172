"""The agent. This package is what goes into the sandbox of a rollout."""

from strands import tool
from strands.types.exceptions import MaxTokensReachedException

from osmosis_ai.rollout import AgentWorkflow, AgentWorkflowConfig, AgentWorkflowContext
from osmosis_ai.rollout.integrations.agents.strands import OsmosisRolloutModel, OsmosisStrandsAgent

MAX_TURNS = 4


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


workflow_config = AgentWorkflowConfig(name="multiply-harbor-strands")

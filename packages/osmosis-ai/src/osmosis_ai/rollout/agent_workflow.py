"""The contract of a user's agent."""

from abc import ABC, abstractmethod
from typing import Any

from osmosis_ai.rollout.context import AgentWorkflowContext
from osmosis_ai.rollout.types.config import AgentWorkflowConfig


class AgentWorkflow[TConfig: AgentWorkflowConfig](ABC):
    """What the agent does with one dataset row.

    One object is made per rollout, with the (copied) workflow config as its only argument.
    """

    def __init__(self, config: TConfig | None = None) -> None:
        self.config = config

    @abstractmethod
    async def run(self, ctx: AgentWorkflowContext[TConfig]) -> Any:
        """Run the agent once.

        Returns None when an integration's agent or session records the conversation, else an
        :class:`~osmosis_ai.rollout.types.output.AgentWorkflowOutput` or a list of chat messages; a returned value wins over a
        recorded one. An exception makes the rollout a failure.
        """

"""The contract of a user's reward."""

from abc import ABC, abstractmethod
from typing import Any

from osmosis_ai.rollout.context import GraderContext
from osmosis_ai.rollout.types.config import GraderConfig


class Grader(ABC):
    """Scores the one sample of a rollout. One object is made per rollout, with the grader config as its only argument."""

    def __init__(self, config: GraderConfig | None = None) -> None:
        self.config = config

    @abstractmethod
    async def grade(self, ctx: GraderContext) -> Any:
        """Give ``ctx.sample`` a finite reward with ``ctx.set_reward``, or take it out with ``ctx.sample.remove_sample = True``."""

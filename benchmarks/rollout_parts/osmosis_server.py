"""The agent behind `create_rollout_server` and a `LocalBackend`."""

from __future__ import annotations

from typing import Any

from benchmarks.rollout_parts.agent import one_turn, reward
from benchmarks.rollout_parts.process import serve
from osmosis_ai.rollout import (
    AgentWorkflow,
    AgentWorkflowConfig,
    AgentWorkflowContext,
    ConcurrencyConfig,
    Grader,
    GraderContext,
    LocalBackend,
)
from osmosis_ai.rollout.context import get_rollout_context
from osmosis_ai.rollout.server import create_rollout_server


class OneTurn(AgentWorkflow[AgentWorkflowConfig]):
    """Asks the policy once."""

    async def run(self, ctx: AgentWorkflowContext[AgentWorkflowConfig]) -> list[dict[str, Any]]:
        rollout = get_rollout_context()
        assert rollout is not None
        return await one_turn(list(ctx.prompt), rollout.chat_completions_url or "", rollout.api_key or "")


class RightProduct(Grader):
    """Rewards the right product."""

    async def grade(self, ctx: GraderContext) -> None:
        assert ctx.sample is not None
        ctx.set_reward(reward(ctx.sample.messages, ctx.label or ""))


if __name__ == "__main__":
    config = AgentWorkflowConfig(name="one-turn", concurrency=ConcurrencyConfig(max_concurrent=256))
    serve(
        create_rollout_server(
            backend=LocalBackend(workflow=OneTurn, workflow_config=config, grader=RightProduct)
        )
    )

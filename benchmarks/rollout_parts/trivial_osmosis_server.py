"""A rollout that does nothing, behind `create_rollout_server` and a `LocalBackend`: what is left is the server itself."""

from __future__ import annotations

from typing import Any

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
from osmosis_ai.rollout.server import create_rollout_server


class Repeats(AgentWorkflow[AgentWorkflowConfig]):
    """Returns its prompt and one answer."""

    async def run(self, ctx: AgentWorkflowContext[AgentWorkflowConfig]) -> list[dict[str, Any]]:
        return [*ctx.prompt, {"role": "assistant", "content": "42"}]


class AlwaysRight(Grader):
    """Gives 1."""

    async def grade(self, ctx: GraderContext) -> None:
        ctx.set_reward(1.0)


if __name__ == "__main__":
    config = AgentWorkflowConfig(name="repeats", concurrency=ConcurrencyConfig(max_concurrent=256))
    serve(
        create_rollout_server(
            backend=LocalBackend(workflow=Repeats, workflow_config=config, grader=AlwaysRight)
        )
    )

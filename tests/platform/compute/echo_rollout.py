"""A rollout that rewards everything; it tells what it sees of the machine."""

import os

import uvicorn

from osmosis_ai.rollout import (
    AgentWorkflow,
    AgentWorkflowConfig,
    Grader,
    LocalBackend,
)
from osmosis_ai.rollout.server import create_rollout_server


class Echo(AgentWorkflow[AgentWorkflowConfig]):
    async def run(self, ctx):
        pass


class One(Grader):
    async def grade(self, ctx):
        ctx.set_reward(1.0)


if __name__ == "__main__":
    print(
        "hello from the rollout, the key is",
        os.environ.get("A_KEY"),
        "and the level",
        os.environ.get("LEVEL"),
    )
    print("I see", sorted(os.listdir("/")))
    backend = LocalBackend(workflow=Echo, workflow_config=AgentWorkflowConfig(name="echo"), grader=One)
    uvicorn.run(
        create_rollout_server(backend=backend),
        host="127.0.0.1",
        port=int(os.environ["_OSMOSIS_ROLLOUT_PORT"]),
    )

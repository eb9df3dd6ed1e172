"""A rollout that goes wrong as its row, or else its environment, says."""

import asyncio
import os

import uvicorn

from osmosis_ai.rollout import AgentWorkflow, AgentWorkflowConfig, ConcurrencyConfig, Grader, LocalBackend
from osmosis_ai.rollout.server import create_rollout_server

FAULT = os.environ.get("FAULT", "")
REWARDS = {"nan": float("nan"), "inf": float("inf"), "huge": 1.7e308}


def fault_of(ctx):
    return FAULT or ctx.metadata["fault"]


class FaultyWorkflow(AgentWorkflow):
    async def run(self, ctx):
        fault = fault_of(ctx)
        if fault == "raise":
            raise ValueError("the calculator is broken")
        if fault == "hang":
            await asyncio.sleep(3600)
        if fault == "exit":
            os._exit(9)
        if fault == "no_sample":
            return None
        return [*ctx.prompt, {"role": "assistant", "content": "12"}]


class FaultyGrader(Grader):
    async def grade(self, ctx):
        fault = fault_of(ctx)
        if fault == "grader_raises":
            raise KeyError("expected_answer")
        if fault == "no_reward":
            return
        if fault == "sample_nan":
            ctx.sample.reward = float("nan")
            return
        ctx.set_reward(REWARDS.get(fault, 1.0))


config = AgentWorkflowConfig(name="faulty", concurrency=ConcurrencyConfig(max_concurrent=16))

if __name__ == "__main__":
    if FAULT == "dies_at_start":
        raise SystemExit("no calculator here")
    backend = LocalBackend(workflow=FaultyWorkflow, workflow_config=config, grader=FaultyGrader)
    app = create_rollout_server(backend=backend)
    uvicorn.run(app, host="127.0.0.1", port=int(os.environ["_OSMOSIS_ROLLOUT_PORT"]))

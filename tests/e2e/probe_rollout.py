"""A rollout that reports each execution and asks the policy once."""

import asyncio
import os

import httpx
import uvicorn

from osmosis_ai.rollout import (
    AgentWorkflow,
    AgentWorkflowConfig,
    ConcurrencyConfig,
    Grader,
    LocalBackend,
    get_rollout_context,
)
from osmosis_ai.rollout.server import create_rollout_server


class ProbeWorkflow(AgentWorkflow):
    async def run(self, ctx):
        rollout = get_rollout_context()
        async with httpx.AsyncClient(trust_env=False, timeout=300) as client:
            report = {"row": ctx.metadata["row"], "rollout_id": rollout.rollout_id}
            await client.post(os.environ["RECORDER_URL"], json=report)
            await asyncio.sleep(float(os.environ.get("PAUSE", "0.2")))
            answer = await client.post(
                f"{rollout.chat_completions_url}/chat/completions",
                headers={"Authorization": f"Bearer {rollout.api_key}"},
                json={"model": "osmosis-rollout", "messages": ctx.prompt, "max_tokens": 12},
            )
            answer.raise_for_status()
            content = answer.json()["choices"][0]["message"].get("content") or ""
        return [*ctx.prompt, {"role": "assistant", "content": content}]


class ProbeGrader(Grader):
    async def grade(self, ctx):
        ctx.set_reward(float(len(ctx.sample.messages[-1]["content"]) % 2))


config = AgentWorkflowConfig(name="probe", concurrency=ConcurrencyConfig(max_concurrent=32))

if __name__ == "__main__":
    backend = LocalBackend(workflow=ProbeWorkflow, workflow_config=config, grader=ProbeGrader)
    app = create_rollout_server(backend=backend)
    uvicorn.run(app, host="127.0.0.1", port=int(os.environ["_OSMOSIS_ROLLOUT_PORT"]))

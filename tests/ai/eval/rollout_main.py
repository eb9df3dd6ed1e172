"""The agent under test: one model call per attempt; the row's metadata says what else happens."""

import asyncio
import os
import sys

import httpx
import uvicorn

from osmosis_ai.rollout import (
    AgentWorkflow,
    AgentWorkflowConfig,
    AgentWorkflowOutput,
    ConcurrencyConfig,
    Grader,
    LocalBackend,
    get_rollout_context,
)
from osmosis_ai.rollout.server import create_rollout_server


class AskOnce(AgentWorkflow):
    async def run(self, ctx):
        todo = (ctx.metadata or {}).get("do")
        if todo == "raise":
            raise KeyError("no such tool")
        if todo == "exit":
            os._exit(1)
        if todo == "sleep":
            await asyncio.sleep(600)
        rollout = get_rollout_context()
        async with httpx.AsyncClient(timeout=60, verify=False) as http:
            response = await http.post(
                rollout.chat_completions_url + "/chat/completions",
                json={"model": "osmosis-rollout", "messages": ctx.prompt, "temperature": 0.9},
                headers={"Authorization": f"Bearer {rollout.api_key}"},
            )
        response.raise_for_status()
        if todo == "artifacts":
            (ctx.artifacts_dir / "notes").mkdir()
            (ctx.artifacts_dir / "notes" / "answer.txt").write_text("forty-two")
            (ctx.artifacts_dir / "link").symlink_to("/etc/passwd")
            (ctx.artifacts_dir / "manifest.json").write_text("{}")
        return AgentWorkflowOutput(messages=[*ctx.prompt, response.json()["choices"][0]["message"]])


class SameAsLabel(Grader):
    async def grade(self, ctx):
        if (ctx.metadata or {}).get("do") == "skip":
            ctx.sample.remove_sample = True
            return
        ctx.set_reward(float(ctx.sample.messages[-1]["content"] == ctx.label))


config = AgentWorkflowConfig(name="ask-once", concurrency=ConcurrencyConfig(max_concurrent=4))
backend = LocalBackend(workflow=AskOnce, workflow_config=config, grader=SameAsLabel)
app = create_rollout_server(backend=backend)

if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")

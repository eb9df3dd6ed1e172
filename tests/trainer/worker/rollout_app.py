"""A rollout of the SDK: two turns with the policy; the reward is the share of digits in the answers.

Each rollout leaves a file and a link out of its folder. `ROLLOUT_STARTS` names a file to which every started rollout is appended. Row metadata can misbehave: `{"agent": "raise"}`
fails after the first turn, `{"grader": "raise"}` fails while grading, `{"grader": "remove"}` removes the sample.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import httpx
import uvicorn

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


def note_start(rollout_id: str) -> None:
    with Path(os.environ["ROLLOUT_STARTS"]).open("a") as file:
        file.write(rollout_id + "\n")


class DigitsWorkflow(AgentWorkflow[AgentWorkflowConfig]):
    async def run(self, ctx: AgentWorkflowContext[AgentWorkflowConfig]) -> list[dict[str, Any]]:
        rollout = get_rollout_context()
        assert rollout is not None
        note_start(rollout.rollout_id)
        messages: list[dict[str, Any]] = list(ctx.prompt)
        assert ctx.artifacts_dir is not None
        (ctx.artifacts_dir / "notes").mkdir()
        (ctx.artifacts_dir / "notes/id.txt").write_text(rollout.rollout_id)
        (ctx.artifacts_dir / "passwd").symlink_to("/etc/passwd")
        async with httpx.AsyncClient(
            headers={"Authorization": f"Bearer {rollout.api_key}"}, timeout=60, trust_env=False
        ) as http:
            for turn in ("Digits, please.", "More."):
                messages.append({"role": "user", "content": turn})
                response = await http.post(
                    f"{rollout.chat_completions_url}/chat/completions",
                    json={"model": "osmosis-rollout", "messages": messages, "max_tokens": 6},
                )
                response.raise_for_status()
                messages.append(response.json()["choices"][0]["message"])
                if (ctx.metadata or {}).get("agent") == "raise":
                    raise RuntimeError("the agent gave up")
        return messages


class DigitsGrader(Grader):
    async def grade(self, ctx: GraderContext) -> None:
        assert ctx.sample is not None
        wish = (ctx.metadata or {}).get("grader")
        if wish == "raise":
            raise RuntimeError("the judge is away")
        if wish == "remove":
            ctx.sample.remove_sample = True
            return
        said = "".join(
            message["content"] or "" for message in ctx.sample.messages if message["role"] == "assistant"
        )
        ctx.set_reward(sum(letter.isdigit() for letter in said) / max(len(said), 1))


if __name__ == "__main__":
    config = AgentWorkflowConfig(name="digits", concurrency=ConcurrencyConfig(max_concurrent=16))
    backend = LocalBackend(workflow=DigitsWorkflow, workflow_config=config, grader=DigitsGrader)
    uvicorn.run(
        create_rollout_server(backend=backend),
        host="127.0.0.1",
        port=int(os.environ["_OSMOSIS_ROLLOUT_PORT"]),
        log_level="warning",
    )

"""The agent behind a rollout server written by hand: accept, run in a task, report twice, keep the conversation on disk."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from benchmarks.rollout_parts.agent import one_turn, reward, shared_client
from benchmarks.rollout_parts.process import serve

app = FastAPI()
_tasks: set[asyncio.Task[None]] = set()


@app.get("/health")
async def health() -> dict[str, str]:
    """Whether the server answers."""
    return {"status": "ok"}


@app.post("/rollout", status_code=202)
async def start(body: dict[str, Any]) -> dict[str, bool]:
    """Start a rollout."""
    task = asyncio.create_task(_rollout(body))
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)
    return {"ok": True}


async def _rollout(body: dict[str, Any]) -> None:
    key = body["key"]
    headers = {"Authorization": f"Bearer {key}"}
    messages = await one_turn(body["messages"], body["chat_url"], key)
    done = {"rollout_id": body["rollout_id"], "status": "success", "messages": messages}
    (await shared_client().post(body["done_url"], json=done, headers=headers)).raise_for_status()
    graded = {**done, "reward": reward(messages, body["label"])}
    (await shared_client().post(body["graded_url"], json=graded, headers=headers)).raise_for_status()
    await asyncio.to_thread(_keep, body["rollout_id"], graded)


def _keep(rollout_id: str, document: dict[str, Any]) -> None:
    folder = Path(os.environ["_OSMOSIS_ROLLOUT_ARTIFACT_ROOT"]) / rollout_id
    folder.mkdir(parents=True)
    (folder / "trajectory.json").write_text(json.dumps(document))


if __name__ == "__main__":
    serve(app)

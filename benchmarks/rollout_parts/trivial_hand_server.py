"""A rollout that does nothing, behind plain FastAPI and asyncio: accept, report twice, keep the conversation on disk."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI

from benchmarks.rollout_parts.process import serve

app = FastAPI()
_tasks: set[asyncio.Task[None]] = set()
_client: httpx.AsyncClient | None = None


@app.get("/health")
async def health() -> dict[str, str]:
    """Whether the server answers."""
    return {"status": "ok"}


@app.post("/rollout", status_code=202)
async def start(body: dict[str, Any]) -> dict[str, Any]:
    """Start a rollout."""
    task = asyncio.create_task(_rollout(body))
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)
    return {}


async def _rollout(body: dict[str, Any]) -> None:
    global _client
    _client = _client or httpx.AsyncClient(timeout=10, trust_env=False)
    rollout_id = body["rollout_id"]
    headers = {"Authorization": f"Bearer {body['controller_api_key']}"}
    folder = Path(os.environ["_OSMOSIS_ROLLOUT_ARTIFACT_ROOT"]) / rollout_id
    await asyncio.to_thread((folder / "artifacts").mkdir, parents=True)
    messages = [*body["initial_messages"], {"role": "assistant", "content": "42"}]
    done = {"rollout_id": rollout_id, "status": "success"}
    answer = await _client.post(body["completion_callback_url"], json=done, headers=headers)
    answer.raise_for_status()
    graded = {**done, "sample": {"messages": messages, "reward": 1.0}}
    answer = await _client.post(body["grader_callback_url"], json=graded, headers=headers)
    answer.raise_for_status()
    await asyncio.to_thread((folder / "trajectory.json").write_text, json.dumps(graded))


if __name__ == "__main__":
    serve(app)

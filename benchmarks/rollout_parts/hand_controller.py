"""The trainer's side written by hand: starts rollouts, answers their model calls, waits for both callbacks.

It does what the numbers need and nothing for the bad days: no retries, no lost servers, no late or double callbacks.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import httpx
import uvicorn
from fastapi import FastAPI, HTTPException, Request

from osmosis_trainer.engines.protocol import SamplingParams


class HandController:
    """Runs rollouts on the server at `server_url` with the policy of `engine`."""

    def __init__(self, server_url: str, engine: Any) -> None:
        self._server_url, self._engine = server_url, engine
        self._key = secrets.token_urlsafe(16)
        self._waiting: dict[str, asyncio.Future[float]] = {}
        self.traces: dict[str, dict[str, Any]] = {}
        self.app = FastAPI()
        self.app.post("/chat/{rollout_id}/chat/completions")(self._chat)
        self.app.post("/done/{rollout_id}")(self._done)
        self.app.post("/graded/{rollout_id}")(self._graded)

    async def run(self, messages: list[dict[str, Any]], label: str) -> float:
        """The reward of one rollout."""
        rollout_id = uuid4().hex
        verdict = self._waiting[rollout_id] = asyncio.get_running_loop().create_future()
        body = {
            "rollout_id": rollout_id,
            "messages": messages,
            "label": label,
            "key": self._key,
            "chat_url": f"{self._url}/chat/{rollout_id}",
            "done_url": f"{self._url}/done/{rollout_id}",
            "graded_url": f"{self._url}/graded/{rollout_id}",
        }
        (await self._client.post(f"{self._server_url}/rollout", json=body)).raise_for_status()
        return await verdict

    async def _chat(self, rollout_id: str, request: Request) -> dict[str, Any]:
        self._require_key(request)
        body = await request.json()
        tokenizer = self._engine.tokenizer
        prompt = tokenizer.apply_chat_template(
            body["messages"], tokenize=True, add_generation_prompt=True, return_dict=False
        )
        sample = await self._engine.sample(prompt, SamplingParams(256, stop_ids=frozenset({2})))
        self.traces[rollout_id] = {
            "prompt": prompt,
            "tokens": sample.token_ids,
            "logprobs": sample.logprobs,
        }
        message = {"role": "assistant", "content": tokenizer.decode(sample.token_ids[:-1])}
        return {
            "id": rollout_id,
            "object": "chat.completion",
            "created": 0,
            "model": body["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        }

    async def _done(self, rollout_id: str, request: Request) -> dict[str, Any]:
        self._require_key(request)
        await request.json()
        return {"ok": True, "trajectory": self.traces[rollout_id]}

    async def _graded(self, rollout_id: str, request: Request) -> dict[str, bool]:
        self._require_key(request)
        self._waiting.pop(rollout_id).set_result((await request.json())["reward"])
        return {"ok": True}

    def _require_key(self, request: Request) -> None:
        if not secrets.compare_digest(request.headers.get("authorization", ""), f"Bearer {self._key}"):
            raise HTTPException(401)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Serve the model and the callbacks on a free loopback port."""
        listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self._url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        config = uvicorn.Config(self.app, log_level="error", access_log=False, lifespan="off")
        server = uvicorn.Server(config)
        task = asyncio.create_task(server.serve(sockets=[listener]))
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
        try:
            async with httpx.AsyncClient(timeout=60, limits=limits, trust_env=False) as self._client:
                yield
        finally:
            server.should_exit = True
            await task

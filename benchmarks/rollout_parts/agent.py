"""The agent both sides run: one question to the policy, and a reward for the right product in the answer."""

from __future__ import annotations

from typing import Any

import httpx

_client: httpx.AsyncClient | None = None


def shared_client() -> httpx.AsyncClient:
    """One client per process, as an agent framework keeps it."""
    global _client
    if _client is None:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
        _client = httpx.AsyncClient(timeout=60, limits=limits, trust_env=False)
    return _client


async def one_turn(messages: list[dict[str, Any]], url: str, key: str) -> list[dict[str, Any]]:
    """The conversation after the policy's answer; `url` is the base of the chat endpoint."""
    response = await shared_client().post(
        f"{url}/chat/completions",
        json={"model": "osmosis-rollout", "messages": messages},
        headers={"Authorization": f"Bearer {key}"},
    )
    response.raise_for_status()
    return [*messages, response.json()["choices"][0]["message"]]


def reward(messages: list[dict[str, Any]], label: str) -> float:
    """1 when the answer holds the label, else 0."""
    return float(label in (messages[-1]["content"] or ""))

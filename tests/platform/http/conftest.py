"""A workspace with an evaluation and a training that have something to show in every place: the platform as a client sees it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from osmosis_platform.context import Platform
from osmosis_platform.runs import tokens
from osmosis_platform.runs.models import Run
from osmosis_platform.runs.status import transition

NOW = "2026-11-01T00:00:00Z"


@dataclass
class Musts:
    """The platform as one of its clients sees it."""

    client: httpx.Client
    platform: Platform
    town: Any
    workshop: Any
    training: dict[str, Any]
    evaluation: dict[str, Any]

    def get(self, path: str, **more: Any) -> Any:
        answer = self.client.get(f"/api/cli/{path}", headers=self.town.ada.scoped(), **more)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        headers = more.pop("headers", self.town.ada.scoped())
        return self.client.request(method, f"/api/cli/{path}", headers=headers, **more)


def report(client: httpx.Client, platform: Platform, run_id: str, *events: dict[str, Any]) -> None:
    """Speak for the run's worker."""
    with platform.database.write() as session:
        run = session.get_one(Run, run_id)
        transition(run, "running")
        token = tokens.issue(run)
    headers = {"Authorization": f"Bearer {token}"}
    client.put(
        f"/api/runs/{run_id}/blobs/{hashlib.sha256(b'{}').hexdigest()}", content=b"{}", headers=headers
    )
    answer = client.post(f"/api/runs/{run_id}/events", json={"events": list(events)}, headers=headers)
    assert answer.status_code == 200, answer.text


def attempt(row: int, index: int, reward: float, **more: Any) -> dict[str, Any]:
    """A finished attempt."""
    return {
        "type": "attempt", "row_index": row, "run_index": index, "rollout_id": f"r{row}x{index}", "status": "success",
        "reward": reward, "tokens": 10, "duration_ms": 1.0, "trajectory_blob": hashlib.sha256(b"{}").hexdigest(), **more,
    }  # fmt: skip


@pytest.fixture
def musts(client: httpx.Client, platform: Platform, town: Any, workshop: Any) -> Musts:
    headers = town.ada.scoped()
    made = [
        client.post(f"/api/cli/{room}", json=workshop.body("tiny/model", **more), headers=headers).json()
        for room, more in (
            ("training-runs", {}),
            ("eval-runs", {"evaluation_config": {"n": 2, "limit": 2, "pass_threshold": 0.5}}),
        )
    ]
    training, evaluation = made
    blob = hashlib.sha256(b"{}").hexdigest()
    report(
        client,
        platform,
        training["id"],
        {"type": "progress", "current_step": 2, "total_steps": 2, "examples_processed": 64},
        {
            "type": "metrics",
            "step": 1,
            "timestamp": NOW,
            "values": {"rollout/raw_reward": 0.2, "huge": -1e308},
        },
        {
            "type": "metrics",
            "step": 2,
            "timestamp": NOW,
            "values": {"rollout/raw_reward": 0.6, "huge": 1e308},
        },
        {"type": "checkpoint", "step": 2, "blob": blob, "final": True},
    )
    file = {"path": "out.txt", "size": 2, "sha256": blob}
    report(
        client,
        platform,
        evaluation["id"],
        {"type": "progress", "sampled_rows": 2},
        attempt(0, 0, 1.0, artifacts=[file, {**file, "path": "manifest.json"}]),
        attempt(0, 1, 0.0),
        attempt(1, 0, 0.0),
        attempt(1, 1, 0.0),
    )
    return Musts(client, platform, town, workshop, training, evaluation)

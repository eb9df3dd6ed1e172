"""What members do to runs, models and datasets is written down with their name."""

from __future__ import annotations

from typing import Any

import httpx
from sqlalchemy import select

from osmosis_platform.adapters import service as models
from osmosis_platform.adapters.models import LoraModel
from osmosis_platform.audit.models import AuditEvent
from osmosis_platform.context import Platform


def deeds(platform: Platform) -> list[tuple[str, str, str | None]]:
    with platform.database.read() as session:
        found = session.scalars(select(AuditEvent).order_by(AuditEvent.created_at, AuditEvent.id))
        return [(event.action, event.target, event.user_id) for event in found]


def test_submits_stops_uploads_and_deployments(
    client: httpx.Client, platform: Platform, workshop: Any, town: Any
) -> None:
    headers = town.max.scoped("acme")
    before = len(deeds(platform))
    run = client.post("/api/cli/eval-runs", json=workshop.body("tiny/model"), headers=headers).json()
    for _ in range(2):  # the second stop changes nothing
        client.post(f"/api/cli/eval-runs/{run['id']}/stop", headers=headers)
    training = client.post("/api/cli/training-runs", json=workshop.body("tiny/model"), headers=headers).json()
    file = {"file_name": "more", "file_size": 10, "extension": "jsonl"}
    assert client.post("/api/cli/datasets", json=file, headers=headers).status_code in (200, 201)
    with platform.database.write() as session:
        lora = LoraModel(
            workspace_id=town.acme.id,
            name="lora",
            base_model_id=workshop.base_model_id,
            run_id=training["id"],
            step=1,
            blob_sha256=platform.blobs.put_bytes(b"x").sha256,
            deployment_status="active",
        )
        session.add(lora)
        session.flush()
        assert models.undeploy(session, town.max.user, lora)
        assert not models.undeploy(session, town.max.user, lora)
    me = town.max.user.id
    assert deeds(platform)[before:] == [
        ("eval.submit", run["name"], me),
        ("eval.stop", run["name"], me),
        ("train.submit", training["name"], me),
        ("dataset.upload", "more", me),
        ("model.undeploy", "lora", me),
    ]

"""Durable work of Hugging Face: one try of an upload per attempt of its job, in a process of its own."""

from __future__ import annotations

import json
import logging
import sys
import tempfile
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from osmosis_platform.adapters.files import adapter_folder
from osmosis_platform.adapters.models import LoraModel
from osmosis_platform.compute.children import Child, Spawner
from osmosis_platform.compute.worker import worker_env
from osmosis_platform.context import Platform
from osmosis_platform.db.types import utc_now
from osmosis_platform.errors import Conflict, NotFound, Unavailable
from osmosis_platform.hugging_face import RESULT, contents, tokens, uploads
from osmosis_platform.hugging_face.models import HubToken, HubUpload
from osmosis_platform.jobs.queue import ClaimedJob, LeaseLost
from osmosis_platform.jobs.runner import GiveBack, RetryLater, Work

log = logging.getLogger("osmosis_platform.hugging_face")

COMMAND = [sys.executable, "-P", "-m", "osmosis_platform.hugging_face.publish"]
LOOK_SECONDS = 0.2
# Before the second and the third try.
DELAYS = (5.0, 30.0)


def handle_upload(job: ClaimedJob, platform: Platform) -> None:
    """Upload what the payload names; raises RetryLater when that failed and may succeed later, Conflict when it cannot."""
    if platform.supervisor is None:
        raise Unavailable("This process starts no uploads.")
    with platform.database.read() as session:
        upload = session.get(HubUpload, job.payload["upload_id"])
        if upload is None or upload.status != "uploading":
            return
        token = session.get(HubToken, upload.token_id) if upload.token_id else None
        if token is None:
            raise NotFound("The token of this upload was deleted. Choose another one and upload again.")
        model = session.get_one(LoraModel, upload.model_id)
        base = model.base_model.name  # loads it
    folder = adapter_folder(platform, model)
    endpoint = platform.settings.hf_endpoint.rstrip("/")
    spec = {
        "endpoint": endpoint,
        "token": tokens.value_of(token, platform.keys),
        "repository": upload.repository,
        "private": upload.private,
        "folder": str(folder),
        "files": contents.files_of(folder),
        "texts": {
            "README.md": contents.card_of(model),
            contents.CONFIG: contents.config_of(folder, model),
        },
        "message": f"Upload {model.name}, a LoRA adapter for {Path(base).name}",
    }
    _publish(job, platform.supervisor.spawner, spec)
    with platform.supervisor.guarded(job) as session:
        ended = session.get(HubUpload, upload.id)
        if ended is not None:  # else its run was deleted meanwhile
            ended.status, ended.finished_at = "uploaded", utc_now()
            ended.url = f"{endpoint}/{ended.repository}"


def upload_given_up(session: Session, job: ClaimedJob, reason: str) -> None:
    """The upload failed for good: its row says why, and it can be started again by hand."""
    upload = session.get(HubUpload, job.payload["upload_id"])
    if upload is not None and upload.status == "uploading":
        upload.status, upload.error, upload.finished_at = "failed", reason, utc_now()


def _publish(job: ClaimedJob, spawner: Spawner, spec: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory(prefix="osmosis-hub-") as home:
        child = spawner.start(
            COMMAND, env=_env(home), cwd=Path(home), on_line=lambda _line: None, name="hugging-face"
        )
        child.send_spec(spec)
        while child.wait(LOOK_SECONDS) is None:
            if job.lost() or job.stopping():
                child.kill()
                raise LeaseLost(job.id) if job.lost() else GiveBack
        child.finish_reading()
    told = _result(child, spec["token"])
    if told["error"] is not None:
        if told["again"]:
            raise RetryLater(told["error"], DELAYS[min(job.attempt, len(DELAYS)) - 1])
        raise Conflict(told["error"], code="UPLOAD_FAILED")


def _result(child: Child, secret: str) -> dict[str, Any]:
    last = child.tail[-1] if child.tail else ""
    if last.startswith(RESULT):
        found: dict[str, Any] = json.loads(last.removeprefix(RESULT))
        return found
    log.error("an upload ended without a result: %s", last.replace(secret, "***"))
    return {"error": f"The upload's process ended with status {child.poll()}.", "again": True}


def _env(home: str) -> dict[str, str]:
    """The environment without the hub's own variables, which could name another hub, token or cache.

    Files go up by the LFS protocol: every hub speaks it, a mirror may not speak Xet.
    """
    kept = {k: v for k, v in worker_env().items() if not k.startswith(("HF_", "HUGGING_FACE_"))}
    return {
        **kept,
        "HF_HOME": home,
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    }


WORK = {uploads.UPLOAD_JOB: Work(handle_upload, upload_given_up)}

"""Whether the platform can serve: asked by people, load balancers and the start of the demo."""

from __future__ import annotations

import logging
import shutil
from typing import Any

from fastapi import APIRouter, Response
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from osmosis_platform.http.scope import PlatformDep
from osmosis_platform.version import VERSION

router = APIRouter()
# Less than this and the next upload or checkpoint fails.
_LEAST_FREE = 1024 * 1024
log = logging.getLogger("osmosis_platform.health")


@router.get("/health")
def health(platform: PlatformDep, response: Response) -> dict[str, Any]:
    """200 when every part works, else 503; `parts` says which one does not. With a full disk what is there can still be read."""
    parts = {
        "database": _database(platform),
        "supervisor": "absent" if platform.supervisor is None else "ok",
        "disk": "full" if shutil.disk_usage(platform.settings.data_dir).free < _LEAST_FREE else "ok",
    }
    ready = "failed" not in parts.values()
    if not ready:
        response.status_code = 503
    return {"ready": ready, "version": VERSION, "parts": parts}


def _database(platform: PlatformDep) -> str:
    try:
        with platform.database.read() as session:
            session.execute(text("SELECT 1"))
    except SQLAlchemyError:
        log.exception("the database does not answer")
        return "failed"
    return "ok"

"""Fetches connected repositories now and then, for hosts that do not tell of pushes."""

from __future__ import annotations

import logging
import threading
from datetime import timedelta

from sqlalchemy import or_, select
from sqlalchemy.exc import SQLAlchemyError

from osmosis_platform.context import Platform
from osmosis_platform.db.types import utc_now
from osmosis_platform.repositories.mirrors import request_fetch
from osmosis_platform.repositories.models import Connection, Repository

log = logging.getLogger("osmosis_platform.repositories")

EVERY = timedelta(minutes=10)
LOOK_SECONDS = 60.0


class Polling:
    """Looks in a thread of its own which mirrors were not fetched for `EVERY`, until `stop()`."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="repository-polling", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._stop.set()
        self._thread.join()

    def _serve(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            try:
                request_due(self._platform)
            except SQLAlchemyError:
                log.exception("connected repositories could not be looked at; it is tried again later")


def request_due(platform: Platform) -> int:
    """Queue a fetch of every mirror that was not tried for `EVERY`; returns how many."""
    before = utc_now() - EVERY
    due = (
        select(Repository)
        .join(Connection, Connection.repository_id == Repository.id)
        .where(or_(Connection.tried_at.is_(None), Connection.tried_at < before))
    )
    with platform.database.read() as session:
        ids = [repository.id for repository in session.scalars(due)]
    if not ids:
        return 0
    with platform.database.write() as session:
        for repository in session.scalars(due):
            request_fetch(session, platform, repository)
    return len(ids)

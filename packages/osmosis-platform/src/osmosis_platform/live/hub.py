"""Tells open pages what changed.

One thread of the process hears of every commit, finds out which workspaces the changed ids belong to, and wakes the streams of
those workspaces. Nobody asks the database in turns: without commits it only checks, every few seconds and with one query for all
streams, that the people behind them may still look.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from osmosis_platform.accounts.models import BrowserSession
from osmosis_platform.datasets.models import Dataset
from osmosis_platform.db.changes import ANYTHING
from osmosis_platform.db.session import Database
from osmosis_platform.db.types import utc_now
from osmosis_platform.errors import RateLimited, Unavailable
from osmosis_platform.runs.models import Run
from osmosis_platform.workspaces.models import Membership

log = logging.getLogger("osmosis_platform.live")

MAX_STREAMS = 500
MAX_STREAMS_OF_A_SESSION = 20
# Commits that follow each other this closely are told at once.
GATHER_SECONDS = 0.1
ACCESS_SECONDS = 5.0
# More changes than this are told as "anything": the page fetches all that it shows.
MAX_CHANGES = 200
_MAX_PLACES = 10_000
_CHUNK = 500


class Change(NamedTuple):
    """Something that changed: `kind` is `eval`, `train` or `dataset`."""

    kind: str
    id: str


@dataclass(eq=False, slots=True)
class Stream:
    """One open page. `changes` and `wake` belong to its event loop; None in `changes` stands for anything."""

    session_id: str
    user_id: str
    workspace_id: str
    loop: asyncio.AbstractEventLoop
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    changes: set[Change | None] = field(default_factory=set)
    ended: bool = False

    def add(self, changes: Iterable[Change | None]) -> None:
        """Keep changes until the page takes them."""
        self.changes.update(changes)
        if len(self.changes) > MAX_CHANGES:
            self.changes = {None}
        self.wake.set()

    def end(self) -> None:
        """Let the page's stream end."""
        self.ended = True
        self.wake.set()

    async def next(self, seconds: float) -> set[Change | None]:
        """What changed since the last call; empty after `seconds`, and when the stream has ended."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.wake.wait(), seconds)
        self.wake.clear()
        found, self.changes = self.changes, set()
        return found


class LiveHub:
    """The streams of one process."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._heard = threading.Condition()
        self._ids: set[str] = set()
        self._streams: set[Stream] = set()
        self._places: dict[str, tuple[str, Change] | None] = {}
        self._closed = False
        self._thread: threading.Thread | None = None
        self._leave = database.changes.listen(self._hear)

    def join(self, session_id: str, user_id: str, workspace_id: str) -> Stream:
        """A stream for a page in the running event loop; raises RateLimited or Unavailable where there are too many."""
        stream = Stream(session_id, user_id, workspace_id, asyncio.get_running_loop())
        with self._heard:
            if self._closed or len(self._streams) >= MAX_STREAMS:
                raise Unavailable("This platform follows as many pages as it can.", code="TOO_MANY_STREAMS")
            mine = Counter(other.session_id for other in self._streams)[session_id]
            if mine >= MAX_STREAMS_OF_A_SESSION:
                raise RateLimited(int(ACCESS_SECONDS))
            self._streams.add(stream)
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="live", daemon=True)
                self._thread.start()
        return stream

    def leave(self, stream: Stream) -> None:
        """The page is gone."""
        with self._heard:
            self._streams.discard(stream)

    def close(self) -> None:
        """End every stream; may be repeated."""
        self._leave()
        with self._heard:
            self._closed = True
            streams, thread = list(self._streams), self._thread
            self._heard.notify()
        self._end(streams)
        if thread is not None:
            thread.join()

    def _hear(self, ids: frozenset[str]) -> None:
        if self._streams:
            with self._heard:
                self._ids |= ids
                self._heard.notify()

    def _watch(self) -> None:
        checked = time.monotonic()
        while True:
            with self._heard:
                self._heard.wait_for(lambda: self._ids or self._closed, ACCESS_SECONDS)
            if self._closed:
                return
            if self._ids:
                time.sleep(GATHER_SECONDS)
            with self._heard:
                ids, self._ids = self._ids, set()
                streams = list(self._streams)
            due = time.monotonic() - checked >= ACCESS_SECONDS
            people = {stream.user_id for stream in streams} | {ANYTHING}
            try:
                with self._database.read() as session:
                    if streams and (due or ids & people):
                        checked = time.monotonic()
                        self._end(_without_access(session, streams))
                    self._tell(session, streams, ids)
            except SQLAlchemyError:
                log.exception("changes cannot be told to open pages")
                for stream in streams:
                    _call(stream, lambda stream=stream: stream.add({None}))

    def _end(self, streams: Iterable[Stream]) -> None:
        for stream in streams:
            _call(stream, stream.end)

    def _tell(self, session: Session, streams: list[Stream], ids: set[str]) -> None:
        told: dict[str, set[Change | None]] = {}
        anything: set[Change | None] = {None} if ANYTHING in ids else set()
        for workspace_id, change in self._located(session, ids):
            told.setdefault(workspace_id, set()).add(change)
        for stream in streams:
            changes = told.get(stream.workspace_id, set()) | anything
            if changes:
                _call(stream, lambda stream=stream, changes=changes: stream.add(changes))

    def _located(self, session: Session, ids: set[str]) -> list[tuple[str, Change]]:
        """The workspace of each changed run and dataset. An id that is neither (a person, a development server) is left out."""
        if len(self._places) > _MAX_PLACES:
            self._places.clear()
        unknown = sorted(ids - self._places.keys() - {ANYTHING})
        for start in range(0, len(unknown), _CHUNK):
            part = unknown[start : start + _CHUNK]
            self._places.update(dict.fromkeys(part))
            runs = select(Run.id, Run.workspace_id, Run.kind).where(Run.id.in_(part))
            for run_id, workspace_id, kind in session.execute(runs):
                self._places[run_id] = (workspace_id, Change(kind, run_id))
            datasets = select(Dataset.id, Dataset.workspace_id).where(Dataset.id.in_(part))
            for dataset_id, workspace_id in session.execute(datasets):
                self._places[dataset_id] = (workspace_id, Change("dataset", dataset_id))
        return [found for found in map(self._places.get, ids) if found is not None]


def _without_access(session: Session, streams: list[Stream]) -> list[Stream]:
    """The streams whose session has ended or whose person has left the workspace."""
    wanted = {stream.user_id for stream in streams}
    mine = BrowserSession.user_id.in_(wanted), BrowserSession.expires_at > utc_now()
    live = set(session.scalars(select(BrowserSession.id).where(*mine)))
    query = select(Membership.user_id, Membership.workspace_id).where(Membership.user_id.in_(wanted))
    members = {(user_id, workspace_id) for user_id, workspace_id in session.execute(query)}
    return [s for s in streams if s.session_id not in live or (s.user_id, s.workspace_id) not in members]


def _call(stream: Stream, what: object) -> None:
    with suppress(RuntimeError):  # its event loop has stopped, and the page with it
        stream.loop.call_soon_threadsafe(what)  # type: ignore[arg-type]

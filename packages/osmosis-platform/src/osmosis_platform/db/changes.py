"""What committed transactions changed, told to whoever listens: the ids of runs, datasets and people, never their content.

A model names in `follows` the column that holds such an id. Sessions collect them on their way to the commit; after a rollback
nothing is told.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sqlalchemy import event
from sqlalchemy.orm import ORMExecuteState, Session, sessionmaker

from osmosis_platform.db.base import Base

# Told instead of ids where a statement changed rows without loading them.
ANYTHING = "*"
_CHANGED = "changed ids"

Listener = Callable[[frozenset[str]], None]


class Changes:
    """The listeners of one database. They are called by the thread that committed, and must return at once."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._listeners: tuple[Listener, ...] = ()

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` after every commit that changed something; returns what ends that."""
        with self._guard:
            self._listeners = (*self._listeners, listener)

        def leave() -> None:
            with self._guard:
                self._listeners = tuple(other for other in self._listeners if other is not listener)

        return leave

    def watch(self, sessions: sessionmaker[Session]) -> None:
        """Collect what sessions of this maker change."""
        event.listen(sessions, "after_flush", _flushed)
        event.listen(sessions, "do_orm_execute", _executed)
        event.listen(sessions, "after_rollback", _forget)
        event.listen(sessions, "after_commit", self._committed)

    def _committed(self, session: Session) -> None:
        changed = session.info.pop(_CHANGED, None)
        if changed:
            for listener in self._listeners:
                listener(frozenset(changed))


def note_rows(session: Session, model: type[Base], rows: Iterable[Mapping[str, Any]]) -> None:
    """Say that a statement of the session inserts or replaces these rows; for statements that objects know nothing of."""
    if model.follows is not None:
        _changed(session).update(row[model.follows] for row in rows)


def _changed(session: Session) -> set[str]:
    found: set[str] = session.info.setdefault(_CHANGED, set())
    return found


def _flushed(session: Session, _context: object) -> None:
    dirty = (found for found in session.dirty if session.is_modified(found))
    for found in (*session.new, *dirty, *session.deleted):
        if isinstance(found, Base) and found.follows is not None:
            _changed(session).add(getattr(found, found.follows))


def _executed(state: ORMExecuteState) -> None:
    if (state.is_update or state.is_delete) and state.bind_mapper is not None:
        model = state.bind_mapper.class_
        if issubclass(model, Base) and model.follows is not None:
            _changed(state.session).add(ANYTHING)


def _forget(session: Session) -> None:
    session.info.pop(_CHANGED, None)

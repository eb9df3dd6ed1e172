"""The log of a run as its supervisor writes it: lines of processes, redacted, in batches, at a bounded rate."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from osmosis_ai.processes.access_lines import is_success_access_line
from osmosis_platform.db.session import Database
from osmosis_platform.db.types import new_id, utc_now
from osmosis_platform.runs.models import LogLine
from osmosis_platform.runs.upsert import insert_missing
from osmosis_platform.runs.wire import cut

log = logging.getLogger("osmosis_platform.runs")

_FLUSH_SECONDS = 0.5
_LINES_PER_SECOND = 100.0
_BURST = 1000.0
_KEPT_OF_A_FLOOD = int(_LINES_PER_SECOND * _FLUSH_SECONDS)
_LONGEST = 4000


_LEVEL = re.compile(r"\b(WARNING|ERROR|CRITICAL)\b")


def level_of(line: str) -> str:
    """The level of a line of output, as logging libraries write it near the line's beginning."""
    match = _LEVEL.search(line, 0, 60)
    if match is None:
        return "error" if line.startswith("Traceback (most recent call last)") else "info"
    return "warning" if match[1] == "WARNING" else "error"


_HEALTH_CHECK = '"GET /health HTTP/1'


class RunLog:
    """Collects lines from any thread and writes them every half second.

    Processes may write `_BURST` lines at once and `_LINES_PER_SECOND` on average, so that a loop of prints can fill neither the
    disk nor the page. Of a flood the last lines of every half second are kept, and so the very last ones, which say how it ended;
    the others are counted.
    """

    def __init__(self, database: Database, run_id: str, redact: Callable[[str], str]) -> None:
        self._database = database
        self._run_id = run_id
        self.redact = redact
        self._guard = threading.Lock()
        self._lines: list[dict[str, Any]] = []
        self._held: deque[dict[str, Any]] = deque(maxlen=_KEPT_OF_A_FLOOD)
        self._allowed = _BURST
        self._refilled = time.monotonic()
        self._dropped = 0
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._serve, name=f"log-{run_id[:8]}", daemon=True)
        self._thread.start()

    def say(self, message: str, *, level: str = "info", step: str = "runner") -> None:
        """Add a line of the supervisor's own; never left out."""
        with self._guard:
            self._release()
            self._lines.append(self._line(message, level, step))

    def output(self, step: str) -> Callable[[str], None]:
        """A receiver for the output of a process."""

        def receive(line: str) -> None:
            if _HEALTH_CHECK in line or is_success_access_line(line):
                return  # once a second or for every rollout, and never of interest
            with self._guard:
                entry = self._line(line, level_of(line), step)
                if not self._held and self._take():
                    self._lines.append(entry)
                    return
                self._dropped += len(self._held) == _KEPT_OF_A_FLOOD
                self._held.append(entry)

        return receive

    def close(self) -> None:
        """Write what is left."""
        self._closed.set()
        self._thread.join()
        self._flush()

    def _take(self) -> bool:
        now = time.monotonic()
        self._allowed = min(_BURST, self._allowed + (now - self._refilled) * _LINES_PER_SECOND)
        self._refilled = now
        if self._allowed < 1:
            return False
        self._allowed -= 1
        return True

    def _release(self) -> None:
        """Put the held lines behind the others; they use up what may be written next."""
        if self._dropped:
            text = f"{self._dropped} lines of output left out: too many a second."
            self._lines.append(self._line(text, "warning", "runner"))
        self._lines += self._held
        self._allowed -= len(self._held)
        self._dropped = 0
        self._held.clear()

    def _line(self, message: str, level: str, step: str) -> dict[str, Any]:
        return {
            "owner_id": self._run_id,
            "event_id": new_id(),
            "timestamp": utc_now(),
            "level": level,
            "step": step,
            "message": cut(self.redact(message), _LONGEST),
            "details": None,
        }

    def _serve(self) -> None:
        while not self._closed.wait(_FLUSH_SECONDS):
            self._flush()

    def _flush(self) -> None:
        with self._guard:
            self._release()
            lines, self._lines = self._lines, []
        if not lines:
            return
        try:
            with self._database.write() as session:
                insert_missing(session, LogLine, lines)
        except SQLAlchemyError:
            log.exception("%d log lines of run %s cannot be written", len(lines), self._run_id)

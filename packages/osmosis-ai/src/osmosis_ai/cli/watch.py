"""Following a run until it is over."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from osmosis_ai.cli.output.messages import notice
from osmosis_ai.cli.output.mode import Mode, mode
from osmosis_ai.cli.output.results import DetailResult
from osmosis_ai.platform.errors import PlatformError

INTERVAL_S = 2.0
_PATIENCE = 60  # looks in a row that the platform may fail to answer: two minutes
_TROUBLE = "The platform does not answer; trying again."


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A run at one moment: ``detail`` for a terminal, ``line`` where there is none."""

    over: bool
    line: str
    detail: DetailResult


def watch(look: Callable[[], Snapshot]) -> None:
    """Look again and again until the run is over; a platform that is away for a while is waited for.

    A terminal shows the run as it changes, on standard error; otherwise each change is one line there, and nothing in JSON mode.

    Raises:
        PlatformError: refused, or no answer for two minutes.
    """
    if mode() is Mode.RICH and sys.stderr.isatty():
        from osmosis_ai.cli.output.live import live

        with live() as show:
            _follow(look, lambda snapshot, trouble: show(snapshot.detail, trouble))
    else:
        _follow(look, _Lines())


class _Lines:
    """Shows a snapshot when it differs from the one before."""

    def __init__(self) -> None:
        self._shown = ""

    def __call__(self, snapshot: Snapshot, trouble: str) -> None:
        line = trouble or snapshot.line
        if line != self._shown:
            self._shown = line
            notice(line)


def _follow(look: Callable[[], Snapshot], show: Callable[[Snapshot, str], None]) -> None:
    last, failures = look(), 0
    while True:
        show(last, _TROUBLE if failures else "")
        if last.over and not failures:
            return
        time.sleep(INTERVAL_S)
        try:
            last, failures = look(), 0
        except PlatformError as error:
            failures += 1
            if not _may_pass(error) or failures >= _PATIENCE:
                raise


def _may_pass(error: PlatformError) -> bool:
    status = error.status_code
    return status is None or status == 429 or status >= 500

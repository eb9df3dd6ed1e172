"""Limits on tries, kept in memory: after a restart everybody starts anew, which an attacker cannot cause."""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from osmosis_platform.errors import RateLimited, Unauthenticated

MAX_KEYS = 10_000


class TryLimit:
    """At most `tries` within `seconds` per key (an address, an account); the oldest keys are forgotten when there are many."""

    def __init__(self, tries: int, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._tries = tries
        self._seconds = seconds
        self._clock = clock
        self._seen: OrderedDict[str, deque[float]] = OrderedDict()
        self._guard = threading.Lock()

    def check(self, *keys: str) -> None:
        """Count a try for each key; raises RateLimited when one of them had too many. Refused tries are not counted."""
        now = self._clock()
        with self._guard:
            windows = [self._window(key, now) for key in keys]
            waits = [window[0] + self._seconds - now for window in windows if len(window) >= self._tries]
            if waits:
                raise RateLimited(max(1, math.ceil(max(waits))))
            for window in windows:
                window.append(now)

    def forget(self, *keys: str) -> None:
        """Start anew for these keys, after a success."""
        with self._guard:
            for key in keys:
                self._seen.pop(key, None)

    def _window(self, key: str, now: float) -> deque[float]:
        window = self._seen.setdefault(key, deque())
        self._seen.move_to_end(key)
        while window and window[0] <= now - self._seconds:
            window.popleft()
        while len(self._seen) > MAX_KEYS:
            self._seen.popitem(last=False)
        return window


@dataclass(frozen=True, slots=True)
class AccountLimits:
    """The limits of one platform: passwords tried, CLI logins started, unknown device codes polled, workspaces made, wrong tokens sent."""

    sign_in: TryLimit = field(default_factory=lambda: TryLimit(10, 300))
    device_start: TryLimit = field(default_factory=lambda: TryLimit(30, 600))
    device_guess: TryLimit = field(default_factory=lambda: TryLimit(30, 60))
    new_workspaces: TryLimit = field(default_factory=lambda: TryLimit(10, 3600))
    token_guess: TryLimit = field(default_factory=lambda: TryLimit(300, 60))

    @contextmanager
    def guessing(self, address: str) -> Iterator[None]:
        """Count the wrong credential that the block raises Unauthenticated for; raises RateLimited when there were too many.

        A right one always passes: nobody is locked out by others behind the same address.
        """
        try:
            yield
        except Unauthenticated:
            self.token_guess.check(f"address:{address}")
            raise

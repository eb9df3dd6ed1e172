"""A mapping that forgets."""

import time
from collections import deque


class TtlCache[K, V]:
    """Keeps a value for ``ttl_sec`` seconds after it was last set. Expired entries are removed by the next write.

    ``entries`` maps a key to ``(deadline, value)``; ``tombstones`` lists ``(deadline, key)`` in the order of their deadlines.
    """

    def __init__(self, ttl_sec: float) -> None:
        self.ttl_sec = ttl_sec
        self.entries: dict[K, tuple[float, V]] = {}
        self.tombstones: deque[tuple[float, K]] = deque()

    def set(self, key: K, value: V) -> None:
        """Store the value, or replace it with a fresh lifetime."""
        now = time.monotonic()
        self._prune(now)
        deadline = now + self.ttl_sec
        self.entries[key] = (deadline, value)
        self.tombstones.append((deadline, key))

    def get(self, key: K) -> V | None:
        """The value, or None from its deadline on."""
        deadline, value = self.entries.get(key, (0.0, None))
        return value if value is not None and time.monotonic() < deadline else None

    def __len__(self) -> int:
        return len(self.entries)

    def _prune(self, now: float) -> None:
        while self.tombstones and self.tombstones[0][0] <= now:
            deadline, key = self.tombstones.popleft()
            entry = self.entries.get(key)
            if entry is not None and entry[0] <= deadline:  # a refreshed entry has a later deadline
                del self.entries[key]

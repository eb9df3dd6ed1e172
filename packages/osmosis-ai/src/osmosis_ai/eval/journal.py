"""Verdicts on disk, before the rollout server is told that they arrived.

Between the verdict of a rollout and its commit on the platform lie its trajectory and artifacts, seconds in which a worker may
be killed. The journal closes that gap: a restarted worker completes what it finds here instead of running it again.
"""

import asyncio
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Verdict:
    """The end of one rollout. ``has_sample``: a trajectory document is to be expected."""

    row_index: int
    run_index: int
    rollout_id: str
    status: str
    reward: float | None
    tokens: int | None
    duration_ms: float
    error_type: str | None
    error_message: str | None
    has_sample: bool


class VerdictJournal:
    """Appends verdicts to a JSON-lines file; each is on disk when ``append`` returns."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = asyncio.Lock()

    def read(self) -> dict[tuple[int, int], Verdict]:
        """Verdicts by (row, run), the first one each. A line cut off by a crash was never acknowledged and is left out."""
        verdicts: dict[tuple[int, int], Verdict] = {}
        if not self._path.exists():
            return verdicts
        for line in self._path.read_bytes().split(b"\n"):
            try:
                verdict = Verdict(**json.loads(line))
            except (ValueError, TypeError):
                continue
            verdicts.setdefault((verdict.row_index, verdict.run_index), verdict)
        return verdicts

    async def append(self, verdict: Verdict) -> None:
        """Write one verdict through to the disk."""
        async with self._lock:
            await asyncio.to_thread(self._write, json.dumps(asdict(verdict)).encode())

    def _write(self, line: bytes) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # A leading newline ends whatever half line a crash may have left behind.
        with self._path.open("ab") as file:
            file.write(b"\n" + line + b"\n")
            file.flush()
            os.fsync(file.fileno())

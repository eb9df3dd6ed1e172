"""Reading a large JSONL file in parts, on all cores; the result is that of reading it in one go."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from osmosis_ai.datasets.metadata import Node
from osmosis_ai.datasets.problems import Problem
from osmosis_ai.datasets.reading_jsonl import scan_jsonl
from osmosis_ai.datasets.row_rules import REQUIRED_COLUMNS
from osmosis_ai.datasets.scan import Progress, Scan

PART_BYTES = 16 * 1024 * 1024
MAX_PROCESSES = 8
# -P: modules of the current folder must not take the place of ours.
_WORKER = (sys.executable, "-P", "-m", "osmosis_ai.datasets.part_worker")
PartReader = Callable[[int, int], Scan]


def cores() -> int:
    """Cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def scan_in_parts(
    path: Path,
    scan: Scan,
    *,
    processes: int | None = None,
    part_bytes: int | None = None,
    progress: Progress | None = None,
) -> None:
    """Check a JSONL file of the documented columns: `processes` (default: one per core, at most 8) read parts of `part_bytes` (16 MiB).

    Parts are read without knowing of each other. Where a part shows other metadata types than the rows before it, it is read
    again with their knowledge, so that problems are the same as if one process had read everything.
    """
    size, part_bytes = path.stat().st_size, part_bytes or PART_BYTES
    parts = [(start, min(start + part_bytes, size)) for start in range(0, size, part_bytes)]
    while parts and scan.columns is None and not scan.broken:  # the first object tells the columns
        start, end = parts.pop(0)
        scan_jsonl(path, scan, start=start, end=end)
    if not parts or scan.broken:
        return
    merge = _Merge(path, scan, parts, progress)
    helpers = min(processes or min(cores(), MAX_PROCESSES), len(parts)) - 1
    with ThreadPoolExecutor(max(helpers, 1)) as pool, _workers(path, helpers, merge) as workers:
        waiting = [pool.submit(merge.take_parts, worker) for worker in workers]
        merge.take_parts(lambda start, end: read_part(path, start, end))
        for done in waiting:
            done.result()


def read_part(path: Path, start: int, end: int) -> Scan:
    """Check one part of a file whose columns are known to be good."""
    scan = Scan(columns=sorted(REQUIRED_COLUMNS))
    scan_jsonl(path, scan, start=start, end=end)
    return scan


def to_json(scan: Scan) -> dict[str, Any]:
    """What a part has shown, for another process."""
    metadata = scan.rules.metadata
    return {
        "rows": scan.rows,
        "lines": scan.lines,
        "problems": [asdict(problem) for problem in scan.problems.kept],
        "problem_count": scan.problems.count,
        "metadata": [metadata.root.to_json(), metadata.paths, metadata.objects, metadata.non_empty],
    }


def from_json(data: dict[str, Any]) -> Scan:
    """The inverse of `to_json`."""
    scan = Scan(columns=sorted(REQUIRED_COLUMNS))
    scan.rows, scan.lines = data["rows"], data["lines"]
    scan.problems.kept = [Problem(**problem) for problem in data["problems"]]
    scan.problems.count = data["problem_count"]
    root, metadata = data["metadata"][0], scan.rules.metadata
    metadata.root = Node.from_json(root)
    _, metadata.paths, metadata.objects, metadata.non_empty = data["metadata"]
    return scan


class _Merge:
    """Hands out parts in order and joins what comes back, in order too."""

    def __init__(
        self, path: Path, scan: Scan, parts: list[tuple[int, int]], progress: Progress | None
    ) -> None:
        self._path, self._scan, self._parts, self._progress = path, scan, parts, progress
        self._taken = self._joined = 0
        self._waiting: dict[int, Scan] = {}
        self._lock = threading.Lock()
        self.stopped = False

    def take_parts(self, read: PartReader) -> None:
        """Read parts until none is left."""
        while not self.stopped:
            with self._lock:
                if self._taken == len(self._parts):
                    return
                number = self._taken
                self._taken += 1
            found = read(*self._parts[number])
            with self._lock:
                self._waiting[number] = found
                self._join()

    def _join(self) -> None:
        while (found := self._waiting.pop(self._joined, None)) is not None and not self.stopped:
            start, end = self._parts[self._joined]
            if self._scan.agrees_with(found):
                self._scan.absorb(found)
            else:
                scan_jsonl(self._path, self._scan, start=start, end=end)
            self._joined += 1
            if self._progress is not None:
                self._progress(end)


@contextmanager
def _workers(path: Path, count: int, merge: _Merge) -> Iterator[list[PartReader]]:
    """Processes that read parts; whatever happens, none of them is left."""
    processes = [
        subprocess.Popen(_WORKER, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(count)
    ]
    try:
        yield [_reader(path, process) for process in processes]
    except BaseException:
        merge.stopped = True
        raise
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.communicate()


def _reader(path: Path, process: subprocess.Popen[bytes]) -> PartReader:
    assert process.stdin is not None
    assert process.stdout is not None
    requests, answers = process.stdin, process.stdout

    def read(start: int, end: int) -> Scan:
        try:
            requests.write(json.dumps([str(path), start, end]).encode() + b"\n")
            requests.flush()
            answer = answers.readline()
        except (OSError, ValueError):
            answer = b""
        if not answer.endswith(
            b"\n"
        ):  # the process is gone (short of memory, perhaps): this one does its work
            return read_part(path, start, end)
        return from_json(json.loads(answer))

    return read

"""How long it takes to look at long runs: a chart, a trajectory, a page of attempts."""

from __future__ import annotations

import json
import subprocess
import tempfile

from benchmarks.platform_pages import PLATFORM, ROOT
from benchmarks.result import Result


def run(
    points: int = 1_000_000, events: int = 350_000, rows: int = 100_000, rounds: int = 20
) -> list[Result]:
    """CPU-milliseconds in one process, as the pages' code asks; the first page of a trajectory is always read from the file."""
    with tempfile.TemporaryDirectory() as folder:
        sizes = [str(size) for size in (points, events, rows, rounds)]
        command = [str(PLATFORM), "-m", "benchmarks.platform_parts.long_runs", folder, *sizes]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    if found["points_out"] > 2000:
        raise RuntimeError(f"a chart has {found['points_out']} points")
    every, whole = "every point read and thinned out", "the whole document read"
    return [
        Result(f"chart of {points:,} points", found["chart"], "CPU-ms", every, found["all_points"] / found["chart"]),
        Result(f"first page of {events:,} steps", found["first_window"], "CPU-ms", whole, found["whole_document"] / found["first_window"]),
        Result(f"last page of {events:,} steps, looked at before", found["last_window"], "CPU-ms", whole, found["whole_document"] / found["last_window"]),
        Result(f"page of {rows:,} rows, p95", found["rows_page_p95"], "CPU-ms", "300 ms, the most it may take", 300 / found["rows_page_p95"]),
    ]  # fmt: skip

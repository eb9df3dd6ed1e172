"""How long a page of runs and a page of a log take when there are many, against the same pages by hand."""

from __future__ import annotations

import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from benchmarks.result import Result
from benchmarks.rollout_parts.process import running

ROOT = Path(__file__).resolve().parents[1]
PLATFORM = ROOT / ".venv" / "bin" / "python"
AGAINST = "by hand: FastAPI, sqlite3"
RUN_PAGE, LOG_PAGE = 50, 200


def run(runs: int = 10_000, lines: int = 1_000_000, requests: int = 200) -> list[Result]:
    """95th percentile in milliseconds, one request at a time; every third page of runs is the first one, the others lie deep.

    Log pages walk from the newest line back.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        seeded = _seed(folder, runs, lines)
        with (
            running(
                "benchmarks.platform_parts.platform_server", folder, python=PLATFORM, arguments=[name]
            ) as ours,
            running(
                "benchmarks.platform_parts.hand_server", folder, python=PLATFORM, arguments=[name]
            ) as hand,
            httpx.Client(trust_env=False, timeout=60) as client,
        ):
            client.headers.update(
                {"Authorization": f"Bearer {seeded['token']}", "X-Osmosis-Workspace": "acme"}
            )
            return [
                _compared(f"page of {runs:,} runs", _runs(client, ours, runs), _hand_runs(client, hand, seeded, runs), requests),
                _compared(f"log page of {lines:,} lines", _logs(client, ours, seeded), _hand_logs(client, hand, seeded), requests),
            ]  # fmt: skip


def _seed(folder: Path, runs: int, lines: int) -> dict[str, Any]:
    command = [str(PLATFORM), "-m", "benchmarks.platform_parts.seed", str(folder), str(runs), str(lines)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    seeded: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return seeded


def _compared(name: str, ours: Iterator[None], hand: Iterator[None], requests: int) -> Result:
    """Both sides take turns, so that a slow spell of the machine hits both."""
    sides: tuple[list[float], list[float]] = ([], [])
    for number in range(requests + 5):
        for times, step in zip(sides, (ours, hand), strict=True):
            start = time.perf_counter()
            next(step)
            if number >= 5:  # the first ones open connections and fill caches
                times.append((time.perf_counter() - start) * 1000)
    value, other = (_p95(times) for times in sides)
    return Result(f"{name}, p95", value, "ms", AGAINST, other / value)


def _p95(times: list[float]) -> float:
    return statistics.quantiles(times, n=20)[-1] if len(times) > 1 else times[0]


def _offsets(runs: int) -> Iterator[int]:
    of_kind = max(1, runs // 4)  # two workspaces, two kinds
    while True:
        yield from (0, of_kind // 2, max(0, of_kind - RUN_PAGE))


def _runs(client: httpx.Client, url: str, runs: int) -> Iterator[None]:
    for offset in _offsets(runs):
        page = _get(client, f"{url}/api/cli/eval-runs", limit=RUN_PAGE, offset=offset)
        if not page["eval_runs"]:
            raise RuntimeError(f"the page at {offset} is empty")
        yield


def _hand_runs(client: httpx.Client, url: str, seeded: dict[str, Any], runs: int) -> Iterator[None]:
    for offset in _offsets(runs):
        _get(client, f"{url}/runs", workspace=seeded["workspace"], kind="eval", limit=RUN_PAGE, offset=offset)
        yield


def _logs(client: httpx.Client, url: str, seeded: dict[str, Any]) -> Iterator[None]:
    return _walk(
        client, f"{url}/api/cli/eval-runs/{seeded['run']}/logs", "cursor", limit=LOG_PAGE, direction="older"
    )


def _hand_logs(client: httpx.Client, url: str, seeded: dict[str, Any]) -> Iterator[None]:
    return _walk(client, f"{url}/logs", "before", run=seeded["run"], limit=LOG_PAGE)


def _walk(client: httpx.Client, url: str, cursor_name: str, **query: Any) -> Iterator[None]:
    """From the newest page back; at the end from the newest again."""
    while True:
        cursor: dict[str, Any] = {}
        while True:
            page = _get(client, url, **query, **cursor)
            yield
            if page["next_cursor"] is None or not page["logs"]:
                break
            cursor = {cursor_name: page["next_cursor"]}


def _get(client: httpx.Client, url: str, **query: Any) -> Any:
    return client.get(url, params=query).raise_for_status().json()

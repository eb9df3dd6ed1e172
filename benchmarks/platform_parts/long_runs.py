"""Long runs in one folder, and how long it takes to look at them: `python -m ... FOLDER POINTS EVENTS ROWS ROUNDS`, JSON on stdout."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient
from sqlalchemy import insert, select

from benchmarks.platform_parts.seed import CHUNK, START, settings
from osmosis_platform.accounts import sessions
from osmosis_platform.accounts.models import User
from osmosis_platform.app import create_app
from osmosis_platform.context import Platform, open_platform
from osmosis_platform.evaluation.results import refresh_results
from osmosis_platform.runs import blocks, series, trajectories
from osmosis_platform.runs.decimate import decimate
from osmosis_platform.runs.models import Run, RunAttempt, RunMetric
from osmosis_platform.workspaces.models import Membership, Workspace

KEY = "rollout/raw_reward"


def main(folder: Path, points: int, events: int, rows: int, rounds: int) -> dict[str, Any]:
    """CPU-milliseconds of each view, and of the plain way beside it where there is one."""
    platform = open_platform(settings(folder))
    try:
        cookie, training, evaluation = _seed(platform, points, rows)
        blob = _trajectory(platform, events)
        with platform.database.read() as session:
            drawn = series.series(session, training, KEY)
            chart = _median(lambda: series.series(session, training, KEY), rounds)
            whole = _median(lambda: _all_points(session, training), 3)
        first = _median(lambda: trajectories.window(platform.blobs, blob, 0), rounds)
        last = _once(lambda: trajectories.window(platform.blobs, blob, events - 100))
        again = _median(lambda: trajectories.window(platform.blobs, blob, events - 100), rounds)
        document = _median(lambda: json.loads(platform.blobs.read_bytes(blob)), 3)
        pages = _pages(platform, cookie, evaluation, rows, rounds)
    finally:
        platform.close()
    return {
        "points_out": len(drawn.points),
        "chart": chart,
        "all_points": whole,
        "first_window": first,
        "last_window_cold": last,
        "last_window": again,
        "whole_document": document,
        "rows_page_p95": pages,
    }


def _seed(platform: Platform, points: int, rows: int) -> tuple[str, str, str]:
    with platform.database.write() as session:
        user = User(email="ada@example.com", name="Ada")
        workspace = Workspace(name="acme")
        session.add_all([user, workspace])
        session.flush()
        session.add(Membership(workspace_id=workspace.id, user_id=user.id, role="owner"))
        common = {
            "workspace_id": workspace.id, "status": "finished", "creator_id": user.id, "rollout_name": "r", "entrypoint": "main.py",
            "commit_sha": "0" * 40, "model_path": "osmosis/tiny-multiply",
            "config": {"experiment": {}, "evaluation": {"n": 1, "pass_threshold": 1.0}},
        }  # fmt: skip
        training = Run(kind="train", name="training", **common)
        evaluation = Run(kind="eval", name="evaluation", sampled_rows=rows, **common)
        session.add_all([training, evaluation])
        cookie = sessions.start_session(session, user, 1).cookie
        session.flush()
    for start in range(0, points, CHUNK):
        steps = range(start, min(start + CHUNK, points))
        with platform.database.write() as session:
            values = [
                {
                    "run_id": training.id,
                    "key": KEY,
                    "step": step,
                    "value": (step * 7919 % 10007) / 10007,
                    "timestamp": START,
                }
                for step in steps
            ]
            session.execute(insert(RunMetric), values)
            blocks.refresh_blocks(session, training.id, [(KEY, step) for step in steps[:: blocks.BLOCK]])
    for start in range(0, rows, CHUNK):
        with platform.database.write() as session:
            attempts = [
                {
                    "run_id": evaluation.id, "row_index": row, "run_index": 0, "rollout_id": str(row), "reward": row % 5 / 4,
                    "status": "failed" if row % 9 == 0 else "success", "tokens": 200 + row % 90, "duration_ms": 800.0 + row % 70,
                    "error_type": "timeout" if row % 9 == 0 else None, "error_message": "too slow" if row % 9 == 0 else None,
                    "finished_at": START,
                }
                for row in range(start, min(start + CHUNK, rows))
            ]  # fmt: skip
            session.execute(insert(RunAttempt), attempts)
    with platform.database.write() as session:
        refresh_results(session, session.get_one(Run, evaluation.id))
    return cookie, training.id, evaluation.id


def _trajectory(platform: Platform, events: int) -> str:
    with platform.blobs.writer() as writer:
        writer.write(b'{"schema_version": "ATIF-v1.4", "session_id": "s", "agent": {"name": "a"}, "steps": [')
        for event in range(events):
            step = {
                "step_id": event + 1,
                "source": "agent" if event % 2 else "user",
                "message": f"event {event}: " + "word " * 40,
            }
            writer.write((b", " if event else b"") + json.dumps(step).encode())
        writer.write(b'], "final_metrics": {}}')
    return writer.stored.sha256


def _all_points(session: Any, run_id: str) -> list[float]:
    """Without summaries: every point is read, then thinned out."""
    query = select(RunMetric.step, RunMetric.value, RunMetric.timestamp).where(
        RunMetric.run_id == run_id, RunMetric.key == KEY
    )
    values = [value for _, value, _ in session.execute(query.order_by(RunMetric.step))]
    return [values[index] for index in decimate(values, series.MAX_POINTS)]


def _pages(platform: Platform, cookie: str, run_id: str, rows: int, rounds: int) -> float:
    """95th percentile of the page of an evaluation's attempts, near its beginning, deep inside and filtered."""
    queries = (
        "offset=0",
        f"offset={rows // 2}",
        f"offset={max(0, rows - 50)}",
        "status=failed&sort=worst",
        "q=slow&error=timeout",
    )
    with TestClient(create_app(platform)) as client:
        client.cookies.set(sessions.COOKIE, cookie)

        def look(query: str) -> None:
            answer = client.get(f"/acme/evaluation/{run_id}?{query}", headers={"Accept": "text/html"})
            assert answer.status_code == 200, answer.text

        look(queries[0])
        times = [_once(lambda query=query: look(query)) for _ in range(rounds) for query in queries]
    return statistics.quantiles(times, n=20)[-1]


def _once(what: Callable[[], object]) -> float:
    start = time.process_time()  # all threads: a busy machine makes nothing slower
    what()
    return (time.process_time() - start) * 1000


def _median(what: Callable[[], object], rounds: int) -> float:
    return statistics.median(_once(what) for _ in range(rounds))


if __name__ == "__main__":
    folder, *numbers = sys.argv[1:]
    print(json.dumps(main(Path(folder), *map(int, numbers))))

"""Fills a data folder with runs and log lines, as a busy year leaves them: `python -m ... FOLDER RUNS LINES`."""

from __future__ import annotations

import json
import sys
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import insert

from osmosis_platform.accounts.models import User
from osmosis_platform.accounts.tokens import create_token
from osmosis_platform.context import Platform, open_platform
from osmosis_platform.runs.models import LogLine, Run
from osmosis_platform.settings import Settings
from osmosis_platform.workspaces.models import Membership, Workspace

WORKSPACES = 2
CHUNK = 5000
START = datetime(2026, 1, 1, tzinfo=UTC)


def settings(folder: Path) -> Settings:
    """Where the benchmark's platform keeps its things."""
    return Settings(data_dir=folder / "data", key_file=folder / "keys.json", log_format="json")


def main(folder: Path, runs: int, lines: int) -> dict[str, Any]:
    """Half of the runs are in the workspace that is measured, the others in its neighbour; one run has all the lines."""
    platform = open_platform(settings(folder))
    try:
        with platform.database.write() as session:
            user = User(email="ada@example.com", name="Ada")
            session.add(user)
            session.flush()
            token = create_token(session, user.id, name="benchmark")[1]
            names = ["acme", *(f"other-{number}" for number in range(1, WORKSPACES))]
            spaces = [Workspace(name=name) for name in names]
            session.add_all(spaces)
            session.flush()
            session.add_all(Membership(workspace_id=s.id, user_id=user.id, role="owner") for s in spaces)
            ids, user_id = [space.id for space in spaces], user.id
        run_id = _runs(platform, ids, user_id, runs)
        _lines(platform, run_id, lines)
    finally:
        platform.close()
    return {"token": token, "workspace": ids[0], "run": run_id}


def _runs(platform: Platform, workspaces: list[str], user_id: str, count: int) -> str:
    results = {
        "score": 0.5,
        "total_runs": 400,
        "sampled_rows": 100,
        "reward_stats": {"mean": 0.5, "pass_at_k": {"1": 0.5}},
    }
    rows = [
        {
            "id": str(uuid.uuid4()),
            "workspace_id": workspaces[number % len(workspaces)],
            "kind": "eval" if number % 4 < 2 else "train",
            "name": f"run-{number}",
            "status": "finished",
            "creator_id": user_id,
            "created_at": START + timedelta(minutes=number),
            "rollout_name": "multiply",
            "entrypoint": "main.py",
            "commit_sha": "0" * 40,
            "model_path": "osmosis/tiny-multiply",
            "config": {"experiment": {}, "evaluation": {"n": 4, "pass_threshold": 0.5}, "advanced": {"seed": 0}},
            "results": results,
            "reward": 0.5,
        }
        for number in range(count)
    ]  # fmt: skip
    for start in range(0, count, CHUNK):
        with platform.database.write() as session:
            session.execute(insert(Run), rows[start : start + CHUNK])
    return str(rows[0]["id"])


def _lines(platform: Platform, run_id: str, count: int) -> None:
    for start in range(0, count, CHUNK):
        rows = [
            {
                "owner_id": run_id,
                "event_id": str(number),
                "timestamp": START + timedelta(milliseconds=number),
                "step": "eval",
                "message": f"row {number}: the agent called multiply and answered with a number of some digits",
            }
            for number in range(start, min(start + CHUNK, count))
        ]
        with platform.database.write() as session:
            session.execute(insert(LogLine), rows)


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))

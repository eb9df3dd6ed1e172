"""The same pages by hand: FastAPI and SQL over the same file, without sign-in, scopes, checks or an object mapper."""

from __future__ import annotations

import json
import sqlite3
import sys
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from benchmarks.rollout_parts.process import serve

LIST = (
    "SELECT id, name, status, created_at, started_at, completed_at, model_path, rollout_name, results, reward FROM runs "
    "WHERE workspace_id = ? AND kind = ? ORDER BY created_at DESC LIMIT ? OFFSET ?"
)
COUNT = "SELECT count(*) FROM runs WHERE workspace_id = ? AND kind = ?"
LOGS = (
    "SELECT sequence, timestamp, level, step, message, details FROM log_lines "
    "WHERE owner_id = ? AND sequence < ? ORDER BY sequence DESC LIMIT ?"
)


def create_app(database: Path) -> FastAPI:
    """Two routes: a page of runs, a page of a log."""
    app = FastAPI()

    def rows(query: str, *values: Any) -> list[dict[str, Any]]:
        with sqlite3.connect(database) as connection:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute(query, values)]

    @app.get("/health")
    def health() -> dict[str, bool]:
        return {"ready": True}

    @app.get("/runs")
    def runs(workspace: str, kind: str, limit: int, offset: int) -> dict[str, Any]:
        found = rows(LIST, workspace, kind, limit, offset)
        for row in found:
            row["results"] = json.loads(row["results"])
        return {"runs": found, "total_count": rows(COUNT, workspace, kind)[0]["count(*)"]}

    @app.get("/logs")
    def logs(run: str, limit: int, before: int = 2**62) -> dict[str, Any]:
        found = rows(LOGS, run, before, limit)
        return {"logs": found[::-1], "next_cursor": found[-1]["sequence"] if found else None}

    return app


if __name__ == "__main__":
    serve(create_app(Path(sys.argv[2]) / "data" / "osmosis.sqlite3"))

"""The Harbor starter as it is shipped: every rollout in a sandbox of its own, inside the platform's sandbox, also under root."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from osmosis_ai.templates.source import workspace_source

STARTER = "multiply-harbor-strands"
ROWS = 4


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
def test_the_harbor_starter_is_evaluated_on_the_platform(
    tmp_path: Path, make_deployment: Callable[..., Any], until: Callable[..., Any]
) -> None:
    source = workspace_source()

    def write_tree(folder: Path) -> None:
        shutil.copytree(source / "rollouts" / STARTER, folder / "rollouts" / STARTER)

    deployment = make_deployment(tmp_path, write_tree)
    deployment.start()
    try:
        lines = (source / "data" / "multiply.jsonl").read_bytes().splitlines(keepends=True)[:ROWS]
        deployment.upload("rows", b"".join(lines))
        run_id = deployment.submit(
            "eval", experiment_config={"rollout": STARTER}, evaluation_config={"limit": ROWS, "n": 1}
        )

        def ended() -> dict[str, Any] | None:
            run: dict[str, Any] = deployment.get(f"/api/cli/eval-runs/{run_id}")["eval_run"]
            return run if run["status"] not in ("pending", "running") else None

        run = until("the evaluation ends", ended, 600, lambda: deployment.logs("eval", run_id))
        assert run["status"] == "finished", deployment.logs("eval", run_id)
        results = deployment.get(f"/api/cli/eval-runs/{run_id}")["results"]
        assert (results["total_runs"], results["graded"], results["failed"]) == (ROWS, ROWS, 0), results
    finally:
        deployment.stop()

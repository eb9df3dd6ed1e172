"""What grading brought is on the pages: label and metrics of an attempt, and evaluations in which nothing was graded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from osmosis_ai.datasets.indexing import index_file
from osmosis_platform.context import Platform
from osmosis_platform.datasets.models import Dataset
from osmosis_platform.runs.models import Run, RunAttempt
from osmosis_platform.runs.trajectories import SMALL_BYTES


@pytest.fixture
def run(platform: Platform, town: Any, tmp_path: Path) -> str:
    """An evaluation over four rows with labels, of which two attempts failed."""
    source, file = tmp_path / "d.jsonl", tmp_path / "d.parquet"
    row = {"user_prompt": "6 times 7?", "ground_truth": "forty-two"}
    source.write_text((json.dumps(row) + "\n") * 4)
    assert index_file(source, file).report.valid
    rows = file.read_bytes()
    with platform.database.write() as session:
        dataset = Dataset(
            workspace_id=town.acme.id, name="d", extension="jsonl", file_size=len(rows), status="uploaded",
            creator_id=town.max.user.id, row_count=4, rows_sha256=platform.blobs.put_bytes(rows).sha256,
        )  # fmt: skip
        session.add(dataset)
        session.flush()
        run = Run(
            workspace_id=town.acme.id, kind="eval", name="all-failed", status="finished", creator_id=town.max.user.id,
            rollout_name="calc", entrypoint="main.py", commit_sha="0" * 40, model_path="a/b", dataset_id=dataset.id, config={},
            results={"graded": 0, "failed": 2, "pass_rate": 0.0},
        )  # fmt: skip
        session.add(run)
        session.flush()
        for index in range(2):
            session.add(
                RunAttempt(
                    run_id=run.id, row_index=0, run_index=index, rollout_id=f"r{index}", status="failed"
                )
            )
        return run.id


def test_an_evaluation_without_a_grade_needs_attention(browser: Any, run: str) -> None:
    max = browser("max")
    [item] = max.json("/acme")["attention"]
    assert (item["id"], item["error"]) == (run, "Nothing was graded, and 2 attempts failed.")
    page = max.json(f"/acme/evaluation/{run}")["run"]
    assert (page["pass_rate"], page["results"]["pass_rate"]) == (None, 0.0)


@pytest.mark.parametrize("length", [10, SMALL_BYTES])
def test_an_attempt_shows_its_label_and_the_metrics_of_its_grader(
    browser: Any, platform: Platform, run: str, length: int
) -> None:
    step = {"step_id": 1, "source": "agent", "message": "x" * length}
    osmosis = {"label": "ä 42", "sample_metrics": {"partial <credit>": 0.25}}
    document = {"session_id": "r1", "steps": [step], "notes": "]", "extra": {"osmosis": osmosis}}
    with platform.database.write() as session:
        stored = platform.blobs.put_bytes(json.dumps(document, ensure_ascii=False).encode())
        session.get_one(RunAttempt, (run, 0, 1)).trajectory_sha256 = stored.sha256
    max = browser("max")
    path = f"/acme/evaluation/{run}/attempts/0"
    assert max.json(f"{path}/0")["label"] == "forty-two"  # failed before it had a trajectory
    found = max.json(f"{path}/1")
    assert (found["label"], found["metrics"]) == ("ä 42", {"partial <credit>": 0.25})
    html = max.get(f"{path}/1").text
    assert "ä 42" in html
    assert "partial &lt;credit&gt;</dt><dd>0.25" in html

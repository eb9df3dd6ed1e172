"""Evaluations row by row: the numbers, the order of rows, and what cannot be compared."""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from osmosis_ai.datasets.indexing import index_file
from osmosis_platform.context import Platform
from osmosis_platform.datasets.models import Dataset
from osmosis_platform.runs.models import Run, RunAttempt

Rewards = dict[int, list[float | None]]


@pytest.fixture
def dataset(platform: Platform, town: Any) -> Callable[[str], str]:
    def dataset(sha256: str) -> str:
        with platform.database.write() as session:
            found = Dataset(
                workspace_id=town.acme.id, creator_id=town.ada.user.id, name=f"set-{sha256}", extension="jsonl", file_size=1,
                source_sha256=sha256,
            )  # fmt: skip
            session.add(found)
            session.flush()
            return found.id

    return dataset


@pytest.fixture
def evaluation(platform: Platform, town: Any) -> Callable[..., str]:
    def evaluation(name: str, dataset_id: str, rewards: Rewards, lr: float = 0.5) -> str:
        with platform.database.write() as session:
            run = Run(
                workspace_id=town.acme.id, kind="eval", name=name, status="finished", creator_id=town.ada.user.id, rollout_name="r",
                entrypoint="main.py", commit_sha="0" * 40, model_path="a/b", dataset_id=dataset_id,
                config={"experiment": {}, "evaluation": {"n": 2, "pass_threshold": 0.5, "temperature": lr}},
            )  # fmt: skip
            session.add(run)
            session.flush()
            for row, values in rewards.items():
                for attempt, reward in enumerate(values):
                    session.add(
                        RunAttempt(
                            run_id=run.id, row_index=row, run_index=attempt, rollout_id="r", reward=reward,
                            status="failed" if reward is None else "success",
                        )
                    )  # fmt: skip
            return run.id

    return evaluation


def test_rows_are_paired_and_those_that_changed_most_come_first(
    browser: Any, dataset: Any, evaluation: Any
) -> None:
    file = dataset("x")
    base = {row: [0.0, 1.0] for row in range(8)}
    other: Rewards = {**base, 1: [1.0, 1.0], 4: [0.0, 0.0], 6: [0.0, None], 7: [None, None], 9: [1.0]}
    a, b = evaluation("first", file, base), evaluation("second", file, other, lr=0.7)
    client = browser("max")
    found = client.json(f"/acme/compare/evaluation?run={a}&run=second&show=all")
    (pair,) = found["pairs"]
    differences = [
        0,
        0.5,
        0,
        0,
        -0.5,
        0,
        -0.5,
    ]  # rows 0 to 6: row 7 has no reward in one run, row 9 is in one run only
    assert (pair["run_id"], pair["rows"], pair["better"], pair["worse"]) == (b, 7, 1, 2)
    assert pair["difference"] == pytest.approx(-0.5 / 7)
    half = 1.959963984540054 * statistics.stdev(differences) / math.sqrt(7)
    assert (pair["low"], pair["high"]) == pytest.approx((-0.5 / 7 - half, -0.5 / 7 + half))
    assert (pair["p_value"], pair["method"], pair["verdict"]) == (1.0, "sign_flip_exact", "unclear")
    assert [row["row_index"] for row in found["rows"]] == [1, 4, 6, 0, 2, 3, 5, 7]
    assert found["rows"][0] == {"row_index": 1, "values": [0.5, 1.0], "differences": [0.5], "prompt": None}
    assert found["rows"][-1] == {"row_index": 7, "values": [0.5, None], "differences": [None], "prompt": None}
    assert [row["name"] for row in found["settings"]] == ["evaluation.temperature"]
    by = {
        show: client.json(f"/acme/compare/evaluation?run={a}&run={b}&show={show}")
        for show in ("changed", "better", "worse")
    }
    assert {show: [row["row_index"] for row in data["rows"]] for show, data in by.items()} == {
        "changed": [1, 4, 6], "better": [1], "worse": [4, 6],
    }  # fmt: skip
    passed = client.json(f"/acme/compare/evaluation?run={a}&run={b}&measure=passed")["pairs"][0]
    assert (passed["rows"], passed["better"], passed["worse"]) == (8, 1, 3)  # failed attempts have not passed
    page = client.get(f"/acme/compare/evaluation?run={a}&run={b}").text
    assert re.findall(r'<td class="title">Row (\d+)</td>', page) == ["1", "4", "6"]
    assert "no difference shown" in page
    assert f'href="/acme/evaluation/{b}?row=4#attempts-title"' in page
    assert [x["row_index"] for x in client.json(f"/acme/evaluation/{b}?row=4")["attempts"]] == [4, 4]


def test_a_real_difference_is_told_and_adjusted_for_how_many_are_compared(
    browser: Any, dataset: Any, evaluation: Any
) -> None:
    file = dataset("x")
    base = {row: [0.0] for row in range(30)}
    a = evaluation("a", file, base)
    b = evaluation("b", file, {row: [1.0 if row < 9 else 0.0] for row in range(30)})
    c = evaluation("c", file, {row: [1.0 if row < 5 else 0.0] for row in range(30)})
    found = browser("max").json(f"/acme/compare/evaluation?run={a}&run={b}&run={c}")
    assert [pair["p_value"] for pair in found["pairs"]] == pytest.approx([2 / 2**9, 2 / 2**5])
    assert [pair["adjusted_p_value"] for pair in found["pairs"]] == pytest.approx([4 / 2**9, 2 / 2**5])
    assert [pair["verdict"] for pair in found["pairs"]] == ["better", "unclear"]
    assert [row["row_index"] for row in found["rows"]][:6] == [0, 1, 2, 3, 4, 5]


def test_the_address_names_the_baseline_and_rows_show_their_prompt(
    browser: Any, evaluation: Any, platform: Platform, workshop: Any, tmp_path: Path
) -> None:
    source = tmp_path / "long.jsonl"
    prompts = ["short", "two\n  lines", "a word " * 100, "<b>bold</b>"]
    source.write_text("".join(json.dumps({"user_prompt": p, "ground_truth": "1"}) + "\n" for p in prompts))
    index_file(source, tmp_path / "long.parquet")
    file = workshop.dataset_id
    with platform.database.write() as session:
        rows = platform.blobs.put_file(tmp_path / "long.parquet").sha256
        session.get_one(Dataset, file).rows_sha256 = rows
    a = evaluation("first", file, {row: [0.0] for row in range(5)})
    b = evaluation("second", file, {row: [1.0] for row in range(5)})
    address = f"/acme/compare/evaluation?run={a}&run={b}"
    client = browser("max")
    found = client.json(f"{address}&baseline=second")
    assert [run["name"] for run in found["runs"]] == ["second", "first"]
    assert found["rows"][0]["differences"] == [-1.0]
    shown = {row["row_index"]: row["prompt"] for row in found["rows"]}
    cut = shown.pop(2)
    assert shown == {0: "short", 1: "two lines", 3: "<b>bold</b>", 4: None}  # the file has four rows
    assert cut.startswith("a word a word")
    assert cut.endswith("…")
    assert len(cut) <= 161
    page = client.get(f"{address}&baseline={b}").text
    assert "&lt;b&gt;bold" in page
    assert re.search(rf'href="[^"]*run={a}&amp;run={b}[^"]*">Make baseline', page)
    assert client.client.get(f"{address}&baseline=nobody").status_code == 404
    platform.blobs.path(rows).unlink()
    assert client.json(address)["rows"][0]["prompt"] is None


def test_what_cannot_be_compared(browser: Any, dataset: Any, evaluation: Any) -> None:
    a = evaluation("a", dataset("x"), {0: [1.0]})
    b = evaluation("b", dataset("y"), {0: [0.0]})
    client = browser("max")
    found = client.json(f"/acme/compare/evaluation?run={a}&run={b}")
    assert (found["same_rows"], found["pairs"], found["rows"]) == (False, [], [])
    assert "different datasets" in client.get(f"/acme/compare/evaluation?run={a}&run={b}").text
    assert "Choose runs to compare" in client.get("/acme/compare/evaluation").text
    again = evaluation("again", dataset("x"), {0: [0.0]})  # the same file, uploaded anew
    assert client.json(f"/acme/compare/evaluation?run={a}&run={again}")["same_rows"] is True
    assert client.client.get("/acme/compare/evaluation?run=none").status_code == 404
    assert browser("eve").client.get(f"/acme/compare/evaluation?run={a}").status_code == 404
    many = [evaluation(f"n{number}", dataset(f"z{number}"), {}) for number in range(7)]
    query = "&".join(f"run={run}" for run in many)
    assert client.client.get(f"/acme/compare/evaluation?{query}").status_code == 400


def test_attempts_are_found_by_error_text_and_row(
    browser: Any, platform: Platform, dataset: Any, evaluation: Any
) -> None:
    run_id = evaluation("a", dataset("x"), {row: [row / 10, None] for row in range(3)})
    with platform.database.write() as session:
        for row, (kind, text) in enumerate(
            [("timeout", "100% slow"), ("agent_error", "<b>boom"), ("timeout", "slow")]
        ):
            attempt = session.get_one(RunAttempt, (run_id, row, 1))
            attempt.error_type, attempt.error_message, attempt.duration_ms = kind, text, float(row)
    client = browser("max")

    def found(query: str) -> list[tuple[int, int]]:
        attempts = client.json(f"/acme/evaluation/{run_id}?{query}")["attempts"]
        return [(attempt["row_index"], attempt["run_index"]) for attempt in attempts]

    assert found("error=timeout&row=") == [(0, 1), (2, 1)]
    assert found("q=0%25+SLOW") == [(0, 1)]
    assert found("row=1") == [(1, 0), (1, 1)]
    assert found("sort=best")[:3] == [(2, 0), (1, 0), (0, 0)]
    assert found("sort=slowest&status=failed") == [(2, 1), (1, 1), (0, 1)]
    assert client.json(f"/acme/evaluation/{run_id}")["error_types"] == ["timeout", "agent_error"]
    page = client.get(f"/acme/evaluation/{run_id}?error=timeout&q=slow&sort=slowest").text
    assert "<option selected>timeout</option>" in page
    assert "&lt;b&gt;boom" not in page

"""A finished attempt or step is never lost and never executed twice, whichever process is killed, and whenever.

Every process of a deployment is killed with SIGKILL at many points of an evaluation and of a training run.
"""

from __future__ import annotations

import itertools
import json
import sqlite3
from datetime import datetime
from typing import Any

import pytest

ROWS = 40
ATTEMPT_KEY = ("phase", "step", "slot", "row_index", "sample_index", "attempt")


def rows(count: int) -> bytes:
    lines = (
        {"system_prompt": "You are a calculator.", "user_prompt": f"What is {i} times 3?", "ground_truth": str(3 * i), "metadata": {"row": i}}
        for i in range(count)
    )  # fmt: skip
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def query(deployment: Any, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
    path = deployment.settings.data_dir / "osmosis.sqlite3"
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30) as connection:
        found = connection.execute(statement, parameters).fetchall()
    connection.close()
    return found


def attempts(deployment: Any, run_id: str) -> dict[int, tuple[str, float, float]]:
    """Row to (rollout id, reward, time at which it was finished)."""
    statement = "SELECT row_index, rollout_id, reward, finished_at FROM run_attempts WHERE run_id = ?"
    return {
        row: (rollout_id, reward, datetime.fromisoformat(f"{finished}+00:00").timestamp())
        for row, rollout_id, reward, finished in query(deployment, statement, run_id)
    }


@pytest.mark.timeout(600)
def test_an_evaluation_survives_every_kill(deployment: Any, recorder: Any, until: Any) -> None:
    deployment.upload("rows", rows(ROWS))
    run_id = deployment.submit(
        "eval",
        evaluation_config={"limit": ROWS, "n": 1, "batch_size": 3},
        env_config={"RECORDER_URL": recorder.url, "PAUSE": "0.3"},
    )
    seen: dict[int, tuple[str, float, float]] = {}
    kills = []

    def ended() -> bool:
        return str(deployment.get(f"/api/cli/eval-runs/{run_id}")["eval_run"]["status"]) not in (
            "pending",
            "running",
        )

    victims = itertools.cycle(["eval worker", "rollout server", "inference server", "platform"])
    while len(kills) < 12:
        target = len(seen) + 1
        until(
            "progress",
            lambda target=target: ended() or len(attempts(deployment, run_id)) >= target,
            explain=lambda: f"killed {kills}\n{deployment.logs('eval', run_id)}",
        )
        if ended():
            break
        seen |= attempts(deployment, run_id)
        victim = next(victims)
        if deployment.kill(victim):
            kills.append(victim)
    until("the end of the run", ended, 240)
    detail = deployment.get(f"/api/cli/eval-runs/{run_id}")
    assert detail["eval_run"]["status"] == "finished", deployment.logs("eval", run_id)
    assert len(kills) >= 10, kills
    final = attempts(deployment, run_id)
    assert sorted(final) == list(range(ROWS))
    assert {row: final[row] for row in seen} == seen  # nothing that was finished changed
    assert detail["results"]["graded"] == ROWS  # infrastructure failure is never a score
    again = [e for e in recorder.executions if e["started"] > final[e["row"]][2]]
    assert again == [], f"executed although finished: {again}"
    assert {e["rollout_id"] for e in recorder.executions} >= {
        rollout_id for rollout_id, _, _ in final.values()
    }


@pytest.mark.timeout(600)
def test_a_training_run_survives_every_kill(deployment: Any, recorder: Any, until: Any) -> None:
    deployment.upload("rows", rows(ROWS))
    steps = 6
    run_id = deployment.submit(
        "training",
        training_config={"rollout_batch_size": 2, "n_samples_per_prompt": 4, "lr": 2e-3},
        checkpoints_config={"eval_interval": 3, "checkpoint_save_freq": 3},
        advanced_config={"max_steps": steps, "validation_rows": 4, "max_completion_tokens": 12},
        env_config={"RECORDER_URL": recorder.url, "PAUSE": "0.3"},
    )
    work = deployment.settings.data_dir / "runs" / run_id / "work"
    metrics: dict[tuple[str, int], float] = {}
    finished: dict[tuple[Any, ...], str] = {}
    kills = []

    def status() -> str:
        return str(deployment.get(f"/api/cli/training-runs/{run_id}")["training_run"]["status"])

    def read_metrics() -> dict[tuple[str, int], float]:
        found = query(deployment, "SELECT key, step, value FROM run_metrics WHERE run_id = ?", run_id)
        return {(key, step): value for key, step, value in found}

    def progress() -> int:
        return len(recorder.executions)

    def note_finished() -> None:
        for path in work.glob("journal/*.jsonl"):
            for line in path.read_text().splitlines(keepends=True):
                if line.endswith("\n"):  # the last line may be in the middle of a write
                    entry = json.loads(line)
                    key = tuple(entry[name] for name in ATTEMPT_KEY)
                    assert (
                        finished.setdefault(key, entry["trace"]["rollout_id"]) == entry["trace"]["rollout_id"]
                    )

    victims = itertools.cycle(["training worker", "rollout server", "platform"])
    while len(kills) < 9:
        target = progress() + 5
        until(
            "progress", lambda target=target: status() not in ("pending", "running") or progress() >= target
        )
        if status() not in ("pending", "running"):
            break
        metrics |= read_metrics()
        note_finished()
        victim = next(victims)
        if deployment.kill(victim):
            kills.append(victim)
    until("the end of the run", lambda: status() not in ("pending", "running"), 300)
    assert status() == "finished", deployment.logs("training", run_id)
    assert len(kills) >= 6, kills
    final = read_metrics()
    assert {
        key: final[key] for key in metrics
    } == metrics  # no finished step was done again with another result
    rewards = sorted(step for key, step in final if key == "rollout/raw_reward")
    assert len(rewards) == steps
    assert rewards == list(range(rewards[0], rewards[0] + steps))
    checkpoints = deployment.get(f"/api/cli/training-runs/{run_id}/checkpoints")["checkpoints"]
    assert {c["checkpoint_step"] for c in checkpoints} == {3, 6}

"""Tokens stay exact through the agent frameworks: the shipped starters, in their own environment, train the shipped model.

Strands streams its answers, the OpenAI Agents SDK asks for whole ones; both send tool calls and results back their own way.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from osmosis_trainer.tiny import TINY_MULTIPLY, model_path

ROOT = Path(__file__).parents[3]
STARTERS = ROOT / "packages/osmosis-ai/src/osmosis_ai/templates/workspace/rollouts"
QUESTIONS = [(6, 7), (3, 9), (8, 4), (5, 5), (7, 2), (9, 6), (4, 3), (2, 8)]


@pytest.fixture
def starter(tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Starts the rollout server of a starter with the Python that has the frameworks; returns its URL."""
    running: list[subprocess.Popen[bytes]] = []

    def start(name: str) -> str:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        names = {
            "_OSMOSIS_ROLLOUT_HOST": "127.0.0.1",
            "_OSMOSIS_ROLLOUT_PORT": str(port),
            "_OSMOSIS_ROLLOUT_INSTANCE_ID": "starter",
            "_OSMOSIS_ROLLOUT_ARTIFACT_ROOT": str(tmp_path / "artifacts"),
        }
        command = [str(ROOT / ".venv/bin/python"), str(STARTERS / name / "main.py")]
        with (tmp_path / "rollout-server.log").open("wb") as log:
            running.append(subprocess.Popen(command, env=os.environ | names, stdout=log, stderr=log))
        return f"http://127.0.0.1:{port}"

    yield start
    for process in running:
        process.kill()
        process.wait()


def questions(path: Path) -> Path:
    """The dataset."""
    texts = ("system_prompt", "user_prompt", "ground_truth", "metadata")
    columns: dict[str, Any] = {
        "row_index": pa.array(range(len(QUESTIONS)), pa.int64()),
        "user_prompt": pa.array([f"What is {a} times {b}?" for a, b in QUESTIONS]),
        "ground_truth": pa.array([str(a * b) for a, b in QUESTIONS]),
    }
    empty = pa.nulls(len(QUESTIONS), pa.string())
    pq.write_table(pa.table(columns | {name: empty for name in texts if name not in columns}), path)
    return path


@pytest.mark.parametrize(
    "name", ["multiply-local-strands", pytest.param("multiply-local-openai", marks=pytest.mark.slow)]
)
async def test_tool_rollouts_are_trained_on_exactly_the_sampled_tokens(
    make_run: Any, platform: Any, starter: Callable[[str], str], tmp_path: Path, name: str
) -> None:
    run = make_run(
        advanced={"max_steps": 2, "validation_rows": 0, "lora_rank": 8, "max_staleness": 1},
        training={"lr": 2e-3, "max_prompt_length": 400, "max_response_length": 300},
    )
    run.spec |= {
        "rollout_url": starter(name),
        "rollout_instance_id": "starter",
        "dataset_path": str(questions(tmp_path / "questions.parquet")),
        "dataset_rows": len(QUESTIONS),
        "base_model": {"name": TINY_MULTIPLY, "path": str(model_path(TINY_MULTIPLY))},
    }
    assert await run.work() == 0, platform.log()
    assert platform.values("rollout/failed_ratio") == {1: 0.0, 2: 0.0}
    assert platform.values("rollout/retokenized_turns") == {1: 0.0, 2: 0.0}
    assert platform.values("rollout/branch_ratio") == {1: 0.0, 2: 0.0}
    assert max(platform.values("rollout/turns").values()) > 1
    mismatch = platform.values("train/sampler_mismatch_kl")
    assert mismatch
    assert max(mismatch.values()) < 1e-6
    assert max(platform.values("train/sampler_gap_max").values()) < 2e-5
    assert all(count > 0 for count in platform.values("ledger/trained").values())

"""The benchmarks run from the command line and say what they compare with."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]


SMALLEST = {
    "dataset_validation": "megabytes=1, rounds=1",
    "learning": "groups=1, rounds=1",
    "long_runs": "points=3000, events=300, rows=60, rounds=2",
    "overlap": "groups=1, steps=1, latency_s=0.01, rounds=1",
    "platform_pages": "runs=8, lines=300, requests=4",
    "rollout_overhead": "rollouts=16, rounds=1",
    "rollout_server": "rollouts=16, rounds=1",
    "rollouts": "rollouts=4, rounds=1",
    "sampling": "longest=8, rounds=1",
    "training_step": "groups=1, steps=1",
}


@pytest.fixture(scope="module")
def results() -> dict[str, list[dict[str, Any]]]:
    """Every benchmark in its smallest size, all in one process: most of the time goes into imports."""
    runs = ", ".join(f"{name!r}: benchmarks.{name}.run({size})" for name, size in SMALLEST.items())
    imports = "".join(f"import benchmarks.{name}\n" for name in SMALLEST)
    code = f"import json, sys\nfrom dataclasses import asdict\n{imports}results = {{{runs}}}\n"
    code += "print(json.dumps({name: [asdict(r) for r in made] for name, made in results.items()}))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    made: dict[str, list[dict[str, Any]]] = json.loads(done.stdout.splitlines()[-1])
    return made


@pytest.mark.parametrize("name", SMALLEST)
def test_a_small_run_gives_finite_ratios(results: dict[str, list[dict[str, Any]]], name: str) -> None:
    assert results[name]
    for result in results[name]:
        assert set(result) == {"name", "value", "unit", "against", "ratio"}
        assert math.isfinite(result["value"])
        assert result["value"] > 0
        assert math.isfinite(result["ratio"])
        assert result["ratio"] > 0
        assert result["against"]


def test_an_unknown_benchmark_is_told() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "nothing"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "no benchmark is called nothing; there are " in done.stderr
    assert all(name in done.stderr for name in SMALLEST)


@pytest.mark.slow
def test_the_memory_of_a_learner_step_is_measured_in_processes_of_its_own() -> None:
    from benchmarks.learner_memory import run

    against_the_loop, twice = run(rows=4, tokens=256)
    assert against_the_loop.ratio > 1
    assert twice.ratio > 0


@pytest.mark.slow
def test_the_gpu_script_runs_on_a_cpu_too_and_says_when_there_is_no_gpu() -> None:
    script = str(ROOT / "benchmarks" / "gpu_smoke.sh")
    env = {**os.environ, "PYTHON": sys.executable}
    small = [script, "--device", "cpu", "--small"]
    done = subprocess.run(small, capture_output=True, text=True, timeout=300, check=False, env=env)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line[:4] for line in lines[1:3]] == ["ok  ", "ok  "]
    found = json.loads(lines[3])
    assert min(found.values()) > 0
    env["CUDA_VISIBLE_DEVICES"] = ""
    done = subprocess.run([script], capture_output=True, text=True, timeout=120, check=False, env=env)
    assert done.returncode == 2
    assert "sees no GPU" in done.stderr

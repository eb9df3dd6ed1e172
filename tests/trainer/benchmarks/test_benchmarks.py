"""The benchmarks run from the command line and say what they compare with."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_rollouts_benchmark_runs_small() -> None:
    code = "import json; from dataclasses import asdict; from benchmarks.rollouts import run; print(json.dumps([asdict(r) for r in run(4, 1)]))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout.splitlines()[-1])
    assert {tuple(sorted(result)) for result in results} == {("against", "name", "ratio", "unit", "value")}
    assert all(
        math.isfinite(r["value"]) and r["value"] > 0 and r["ratio"] > 0 and r["against"] for r in results
    )


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
    assert (
        "no benchmark is called nothing; there are learning, rollouts, sampling, training_step" in done.stderr
    )

"""Dataset validation: a JSONL file with prompts, answers and metadata, against a plain `json.loads` loop with the same checks."""

from __future__ import annotations

import json
import random
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.result import Result, median_of_rounds
from osmosis_ai.datasets import validate_file

MEGABYTES = 1000
TEXT_COLUMNS = ("system_prompt", "user_prompt", "ground_truth", "label")


def run(megabytes: int = MEGABYTES, rounds: int = 3) -> list[Result]:
    """Megabytes per second; CPU-seconds count those of all processes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.jsonl"
        rows = write_rows(path, megabytes * 1_000_000)
        size = path.stat().st_size / 1e6

        def ours() -> None:
            report = validate_file(path)
            if report.errors or report.row_count != rows:
                raise AssertionError(report)

        def theirs() -> None:
            if PlainLoop().validate(path) != rows:
                raise AssertionError("the plain loop lost rows")

        timed = [_timed(ours), _timed(theirs)]
        wall, plain = median_of_rounds([lambda: size / timed[0]()[0], lambda: size / timed[1]()[0]], rounds)
        cpu, plain_cpu = median_of_rounds([lambda: size / timed[0]()[1], lambda: size / timed[1]()[1]], 1)
    against = "json.loads loop with the same checks"
    return [
        Result("dataset validation, all cores", wall, "MB/s", against, wall / plain),
        Result("dataset validation, CPU", cpu, "MB/CPU-s", against, cpu / plain_cpu),
    ]


def _timed(job: Callable[[], None]) -> Callable[[], tuple[float, float]]:
    """Runs the job: wall-clock seconds, CPU-seconds of this process and its children."""

    def measure() -> tuple[float, float]:
        cpu, start = _cpu_seconds(), time.perf_counter()
        job()
        return time.perf_counter() - start, _cpu_seconds() - cpu

    return measure


def _cpu_seconds() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def write_rows(path: Path, size: int) -> int:
    """Write rows of about 1 kB until the file has `size` bytes; the number of rows."""
    chance = random.Random(1)
    words = [
        "".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(2, 9))) for _ in range(3000)
    ]
    words += ["naïve", "Größe:", '"quoted"', "x\ny", "7 * 8", "🙂"]
    lines = []
    for number in range(2000):
        row = {
            "system_prompt": " ".join(chance.choices(words, k=40)),
            "user_prompt": " ".join(chance.choices(words, k=chance.randint(30, 150))),
            "ground_truth": str(chance.randint(0, 10**6)),
            "metadata": {
                "id": number,
                "topic": chance.choice(words),
                "difficulty": chance.random(),
                "tags": chance.choices(words, k=2),
                "source": {"part": number % 7, "name": "x"},
            },
        }
        lines.append(json.dumps(row, ensure_ascii=number % 2 == 0).encode() + b"\n")
    rows = written = 0
    with path.open("wb") as file:
        while written < size:
            line = lines[rows % len(lines)]
            file.write(line)
            written += len(line)
            rows += 1
    return rows


class PlainLoop:
    """The validator everyone writes first: one line at a time, hooks for repeated keys and NaN, a recursive walk."""

    def __init__(self) -> None:
        self.types: dict[str, str] = {}

    def validate(self, path: Path) -> int:
        """Check every row; the number of rows."""
        rows = 0
        with path.open(encoding="utf-8") as file:
            for line in file:
                if not line.strip():
                    continue
                row = json.loads(line, object_pairs_hook=_once, parse_constant=_refuse)
                self._check(row)
                rows += 1
        return rows

    def _check(self, row: Any) -> None:
        if not isinstance(row, dict):
            raise ValueError("not an object")
        for name in ("system_prompt", "user_prompt"):
            if name not in row:
                raise ValueError(f"missing {name}")
        for name in TEXT_COLUMNS:
            value = row.get(name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, str | int | float)):
                raise ValueError(f"{name} is no text")
        metadata = row.get("metadata")
        if metadata is None and not row["system_prompt"] and not row["user_prompt"]:
            raise ValueError("no prompt")
        if metadata is not None:
            self._walk(metadata, "$")

    def _walk(self, value: Any, path: str) -> None:
        if isinstance(value, dict):
            for key, item in value.items():
                self._item(item, f"{path}.{key}")
        elif isinstance(value, list):
            for item in value:
                self._item(item, f"{path}[]")

    def _item(self, item: Any, path: str) -> None:
        if item is None:
            return
        kind = (
            "number" if isinstance(item, int | float) and not isinstance(item, bool) else type(item).__name__
        )
        if self.types.setdefault(path, kind) != kind:
            raise ValueError(f"inconsistent type at {path}")
        if item == {}:
            raise ValueError(f"empty object at {path}")
        if isinstance(item, int) and not -(2**63) <= item < 2**63:
            raise ValueError(f"too large at {path}")
        if isinstance(item, float) and not abs(item) < float("inf"):
            raise ValueError(f"not finite at {path}")
        self._walk(item, path)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("duplicate key")
    return found


def _refuse(name: str) -> Any:
    raise ValueError(name)

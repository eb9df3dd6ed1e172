"""A finished attempt is never lost and never executed twice; a killed run resumes to the numbers of one never killed."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Worker = Callable[..., int]

KILLS = [
    "start:3",  # in the evaluation before the first step: nothing is saved yet
    "save:1",  # while the first state is written
    "journaled:9",
    "learn:1",
    "learned:1",  # after the optimizer moved, before anything says so
    "flush:1",  # reported, not saved
    "save:1",
    "finish:2",  # the agent is done, the journal does not have it yet
    "journaled:30",
    "save:2",
]

# With rollouts collected ahead: step 2's are under way while step 1 learns.
KILLS_AHEAD = [
    "start:3",
    "learn:1",  # nothing of step 2 is there yet
    "journaled:9",  # in the middle of step 2's rollouts; step 1 is complete, but not learned from
    "learned:1",  # both steps are complete, the policy moved
    "flush:1",
    "save:1",
    "finish:2",  # in step 3's rollouts, ahead of the state that has step 2's
    "journaled:5",
    "save:2",  # step 3's state, after step 2's was saved
    "learned:1",
]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def journaled(folder: Path) -> dict[tuple[Any, ...], str]:
    """Key to rollout id of every whole line of every journal."""
    found: dict[tuple[Any, ...], str] = {}
    for path in (folder / "work" / "journal").glob("*.jsonl"):
        for line in path.read_bytes().split(b"\n")[:-1]:
            record = json.loads(line)
            key = tuple(
                record[name] for name in ("phase", "step", "slot", "row_index", "sample_index", "attempt")
            )
            assert key not in found, "an attempt is in the journal twice"
            found[key] = record["trace"]["rollout_id"]
    return found


def metrics(folder: Path) -> dict[int, dict[str, float]]:
    """The numbers of every step, without those that are times."""
    found: dict[int, dict[str, float]] = {}
    for event in lines(folder / "events.jsonl"):
        if event["type"] == "metrics":
            found[event["step"]] = {k: v for k, v in event["values"].items() if not k.startswith("perf/")}
    return found


@pytest.mark.parametrize(("staleness", "kills"), [(0, KILLS), (1, KILLS_AHEAD)])
def test_killed_anywhere_no_attempt_is_lost_or_repeated_and_the_numbers_are_the_same(
    worker: Worker, tmp_path: Path, config: dict[str, Any], staleness: int, kills: list[str]
) -> None:
    calm, rough = tmp_path / "calm", tmp_path / "rough"
    config["advanced"]["max_staleness"] = staleness
    assert worker(calm, config) == 0

    finished: dict[tuple[Any, ...], str] = {}
    for kill in kills:
        before = len(lines(rough / "starts.jsonl")) if (rough / "starts.jsonl").exists() else 0
        assert worker(rough, config, kill) == -signal.SIGKILL, f"{kill} was not reached"
        started = {tuple(line["key"]) for line in lines(rough / "starts.jsonl")[before:]}
        assert not started & set(finished), "an attempt that was finished ran again"
        for key, rollout_id in journaled(rough).items():
            assert finished.setdefault(key, rollout_id) == rollout_id, "a finished attempt was replaced"
    before = len(lines(rough / "starts.jsonl"))
    assert worker(rough, config) == 0
    last = lines(rough / "starts.jsonl")[before:]
    assert not {tuple(line["key"]) for line in last} & set(finished)

    starts = [line["rollout_id"] for line in lines(rough / "starts.jsonl")]
    assert all(starts.count(rollout_id) == 1 for rollout_id in finished.values())
    for step in (2, 4):
        adapter = f"work/checkpoints/step-{step}/adapter.txt"
        assert (rough / adapter).read_bytes() == (calm / adapter).read_bytes()
    assert metrics(rough) == metrics(calm)
    assert {tuple(line["key"]) for line in lines(rough / "starts.jsonl")} == {
        tuple(line["key"]) for line in lines(calm / "starts.jsonl")
    }


def test_another_seed_gives_another_adapter(worker: Worker, tmp_path: Path, config: dict[str, Any]) -> None:
    """The comparison above can fail."""
    adapters = []
    for seed in (1, 2):
        folder = tmp_path / str(seed)
        assert worker(folder, config | {"advanced": config["advanced"] | {"seed": seed}}) == 0
        adapters.append((folder / "work/checkpoints/step-4/adapter.txt").read_bytes())
    assert adapters[0] != adapters[1]


@pytest.mark.parametrize("point", ["start:40", "learned:2"])
def test_a_torn_last_journal_line_is_run_again(
    worker: Worker, tmp_path: Path, config: dict[str, Any], point: str
) -> None:
    calm, rough = tmp_path / "calm", tmp_path / "rough"
    assert worker(calm, config) == 0
    assert worker(rough, config, point) == -signal.SIGKILL
    path = max((rough / "work/journal").glob("*.jsonl"), key=lambda path: int(path.stem[5:]))
    content = path.read_bytes()
    assert content.count(b"\n") > 1
    path.write_bytes(content[:-20])
    assert worker(rough, config) == 0
    adapter = "work/checkpoints/step-4/adapter.txt"
    assert (rough / adapter).read_bytes() == (calm / adapter).read_bytes()

"""Metrics against hand calculations."""

from __future__ import annotations

import math
import random
import statistics
from dataclasses import replace
from typing import Any

import pytest

from osmosis_trainer.collect.attempt import Attempt, AttemptKey
from osmosis_trainer.collect.batch import Batch
from osmosis_trainer.collect.groups import PromptGroup
from osmosis_trainer.gateway.ledger import Ledger
from osmosis_trainer.gateway.trace import Branch, CallRecord, SessionTrace
from osmosis_trainer.metrics import Stopwatch, performance, reward_interval, rollout_metrics, student_t_975


def call(
    index: int, parent: int | None, context: int, sampled: int, outcome: str = "text", **changes: Any
) -> CallRecord:
    fields: dict[str, Any] = {
        "branch": Branch.EXTENDED if parent is not None else Branch.ROOT,
        "policy_version": 4,
        "seed": 1,
        "temperature": 1.0,
        "top_p": 1.0,
        "max_tokens": 9,
        "finish_reason": "stop",
        "truncated": False,
        "messages": [],
        "answer": {},
        "tool_set": 0,
        "cached_tokens": 0,
        "started_s": 0.0,
        "seconds": 0.0,
    }
    return CallRecord(
        index=index,
        parent=parent,
        context_ids=[1] * context,
        token_ids=[2] * sampled,
        logprobs=[-1.0] * sampled,
        outcome=outcome,
        **fields | changes,
    )


def sample(index: int, outcome: str, reward: float | None, *calls: CallRecord) -> Attempt:
    return Attempt(
        **AttemptKey("train", 1, 0, 0, index, 0)._asdict(),
        outcome=outcome,
        retry=False,
        reward=reward,
        error_type=None,
        error_message=None,
        duration_ms=1.0,
        trace=SessionTrace(f"r{index}", 1, calls, ([],)),
    )


def group(slot: int, *samples: Attempt) -> PromptGroup:
    return PromptGroup(slot, slot, list(samples), list(samples))


def test_rollout_metrics_by_hand() -> None:
    groups = [
        group(
            0,
            sample(0, "graded", 1.0, call(0, None, 10, 5, "tool_calls"), call(1, 0, 3, 2)),
            sample(1, "graded", 0.0, call(0, None, 10, 4, "malformed_tool_call", truncated=True)),
            sample(2, "failed", None, call(0, None, 10, 1), call(1, None, 20, 1, branch=Branch.EDITED)),
            sample(3, "invalid", None),
        ),
        group(
            1, sample(0, "graded", 0.5, call(0, None, 8, 3)), sample(1, "graded", 0.5, call(0, None, 8, 3))
        ),
        group(2, sample(0, "skipped", None), sample(1, "graded", 1.0, call(0, None, 7, 7))),
    ]
    values = rollout_metrics(groups, policy_version=5)
    assert values == pytest.approx(
        {
            "rollout/raw_reward": (1.0 + 0.0 + 0.0 + 0.5 + 0.5 + 1.0) / 6,
            "rollout/reward_std": (math.sqrt(2) / 3 + 0.0) / 2,
            "rollout/invalid_ratio": 1 / 7,
            "rollout/failed_ratio": 1 / 7,
            "rollout/skipped_ratio": 1 / 8,
            "rollout/zero_variance_ratio": 1 / 2,
            "rollout/groups_tried": 3,
            "rollout/groups_trained": 1,
            "rollout/response_lengths": (7 + 4 + 2 + 3 + 3 + 7) / 6,
            "rollout/total_lengths": (20 + 14 + 21 + 11 + 11 + 14) / 6,
            "rollout/truncated_ratio": 1 / 6,
            "rollout/turns": 8 / 6,
            "rollout/tool_error_ratio": 1 / 2,
            "rollout/branch_ratio": 1 / 6,
            "rollout/retokenized_turns": 1,
            "rollout/staleness": 1,
        }
    )


def test_what_cannot_be_computed_is_left_out() -> None:
    values = rollout_metrics([group(0, sample(0, "invalid", None), sample(1, "invalid", None))], 0)
    assert "rollout/raw_reward" not in values
    assert "rollout/turns" not in values
    assert values["rollout/invalid_ratio"] == 1.0


@pytest.mark.parametrize(
    ("freedom", "table"),
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (5, 2.571), (10, 2.228), (30, 2.042), (120, 1.980)],
)
def test_quantiles_of_students_t_against_the_printed_table(freedom: int, table: float) -> None:
    assert student_t_975(freedom) == pytest.approx(table, rel=1.2e-3)


@pytest.mark.parametrize("count", [4, 30])
def test_the_interval_covers_the_truth_19_times_in_20(count: int) -> None:
    dice, hits, rounds = random.Random(3), 0, 800
    for _ in range(rounds):
        rows = [
            [dice.gauss(mu, 0.3) for _ in range(2)] for mu in (dice.gauss(0.4, 0.2) for _ in range(count))
        ]
        result = reward_interval(rows)
        assert result is not None
        hits += abs(result[0] - 0.4) < result[1]
    assert abs(hits / rounds - 0.95) < 0.025


def test_the_interval_takes_rows_as_the_unit() -> None:
    rows = [[1.0, 1.0, 1.0, 1.0], [0.0, 0.0], []]
    mean, half = reward_interval(rows) or (0.0, 0.0)
    assert mean == 0.5
    assert half == pytest.approx(12.706 * statistics.stdev([1.0, 0.0]) / math.sqrt(2), rel=1e-3)
    assert reward_interval([[]]) is None
    assert math.isnan((reward_interval([[1.0]]) or (0.0, 0.0))[1])


def test_time_outside_the_model_leaves_out_overlapping_calls_once() -> None:
    spans = [(0.0, 2.0), (1.0, 2.0), (4.0, 0.5)]
    calls = [call(i, None, 2, 2, started_s=start, seconds=length) for i, (start, length) in enumerate(spans)]
    attempt = replace(sample(0, "graded", 1.0, *calls), duration_ms=6000.0)
    values = performance([group(0, attempt)], Batch([], Ledger(), {}), Stopwatch(), 0.0)
    assert values["perf/agent_seconds"] == pytest.approx(6.0 - 3.0 - 0.5)
    assert values["perf/rollout_seconds"] == 6.0


def test_the_stopwatch_adds_up() -> None:
    times = iter([0.0, 1.0, 3.0, 4.0, 5.5, 7.0])
    watch = Stopwatch(lambda: next(times))
    with watch.part("sample"):
        pass
    with watch.part("sample"):
        pass
    assert watch.metrics() == {"perf/sample_seconds": 3.5, "perf/step_seconds": 7.0}

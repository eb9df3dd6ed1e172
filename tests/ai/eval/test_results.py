"""Numbers of evaluations against hand calculations."""

import math

import pytest

from osmosis_ai.eval.results import (
    Z_95,
    clustered_interval,
    pass_at_k,
    reward_stats,
    summarise,
    wilson_interval,
)


def attempt(row, run, status="success", reward=None, **more):
    return {"row_index": row, "run_index": run, "status": status, "reward": reward, **more}


ATTEMPTS = [
    attempt(0, 0, reward=1.0, tokens=10),
    attempt(0, 1, reward=0.0, tokens=20),
    attempt(0, 2, status="failed", tokens=5),
    attempt(0, 3, reward=1.0, resumed=True),
    attempt(1, 0, reward=0.5),
    attempt(1, 1, reward=0.5),
    attempt(1, 2, reward=1.0),
    attempt(1, 3, status="skipped", tokens=7),
]


def test_a_mixed_run_by_hand():
    summary = summarise(ATTEMPTS, n=4, pass_threshold=1.0, sampled_rows=2, total_rows=20, duration_ms=1234.0)
    results, metrics = summary["results"], summary["metrics"]
    assert results["total_runs"] == 8
    assert (results["graded"], results["passed"], results["failed"], results["skipped"]) == (6, 3, 1, 1)
    assert results["pass_rate"] == pytest.approx(3 / 7)
    assert results["score"] == pytest.approx(4 / 6)
    assert (results["sampled_rows"], results["total_dataset_rows"]) == (2, 20)
    assert (results["total_tokens"], results["resumed_count"]) == (42, 1)
    # rewards 1 0 1 .5 .5 1: squared deviations from 2/3 are 3 x 1/9, 4/9, 2 x 1/36, their mean is 5/36
    assert results["reward_stats"]["std"] == pytest.approx(math.sqrt(5 / 36))
    assert results["reward_stats"]["median"] == 0.75
    assert (results["reward_stats"]["min"], results["reward_stats"]["max"]) == (0.0, 1.0)
    # k=1: rows 2/4 and 1/3. k=2: 1 - C(2,2)/C(4,2) = 5/6 and 1 - C(2,2)/C(3,2) = 2/3. k=4: only row 0 has 4.
    expected = {"1": (1 / 2 + 1 / 3) / 2, "2": (5 / 6 + 2 / 3) / 2, "4": 1.0}
    assert results["reward_stats"]["pass_at_k"] == pytest.approx(expected)
    assert metrics["pass_at_k"] == [{"k": int(k), "value": pytest.approx(v)} for k, v in expected.items()]
    assert metrics["overview"] == {
        "duration_ms": 1234.0,
        "total_samples": 8,
        "completed_samples": 7,
        "graded": 6,
        "passed": 3,
        "failed": 1,
        "skipped": 1,
        "pass_rate": pytest.approx(3 / 7),
        "pass_threshold": 1.0,
        "tokens_used": 42,
    }
    assert set(metrics["reward_stats"]) == {"mean", "median", "std", "min", "max"}


def test_one_attempt_per_row_has_no_pass_at_k():
    summary = summarise([attempt(0, 0, reward=1.0), attempt(1, 0, reward=0.0)], 1, 1.0, 2, 2)
    assert "pass_at_k" not in summary["results"]["reward_stats"]
    assert summary["metrics"]["pass_at_k"] == []
    assert summary["results"]["confidence"]["pass_rate"]["method"] == "wilson"


@pytest.mark.parametrize("attempts", [[], [attempt(0, 0, status="skipped")]])
def test_nothing_scored(attempts):
    summary = summarise(attempts, 2, 1.0, 1, 10)
    assert summary["results"]["score"] is None
    assert summary["results"]["pass_rate"] == 0.0
    assert summary["results"]["confidence"] == {}
    assert summary["metrics"]["reward_stats"] is None


def test_all_failed_counts_against_the_rate():
    results = summarise([attempt(r, 0, status="failed") for r in range(4)], 1, 0.5, 4, 4)["results"]
    assert (results["pass_rate"], results["failed"], results["graded"]) == (0.0, 4, 0)
    assert results["confidence"]["pass_rate"]["high"] == pytest.approx(0.4899, abs=1e-4)


def test_pass_at_k_of_the_paper():
    # n = 10 attempts, c = 3 passed: pass@1 = .3, pass@2 = 1 - C(7,2)/C(10,2) = 24/45, pass@8 = 1 (fewer than 8 failed)
    points = pass_at_k([(0, i < 3) for i in range(10)], 10)
    assert points == [
        (1, pytest.approx(0.3)),
        (2, pytest.approx(24 / 45)),
        (4, pytest.approx(1 - 35 / 210)),
        (8, 1.0),
    ]


@pytest.mark.parametrize(
    ("successes", "total", "low", "high"),
    # Brown, Cai and DasGupta 2001; and R's binom::binom.confint(method = "wilson")
    [(0, 10, 0.0, 0.2775), (5, 10, 0.2366, 0.7634), (8, 10, 0.4902, 0.9433), (263, 263, 0.9856, 1.0)],
)
def test_wilson(successes, total, low, high):
    assert wilson_interval(successes, total) == (pytest.approx(low, abs=1e-4), pytest.approx(high, abs=1e-4))


def test_clusters_widen_the_interval():
    # Two rows, each with two equal attempts: mean .5, residual sums +-1, variance 2 * 2 / 1 / 16
    low, high = clustered_interval([(0, 1.0), (0, 1.0), (1, 0.0), (1, 0.0)])
    assert high - low == pytest.approx(2 * 1.959964 * 0.5, rel=1e-6)
    # One attempt per row is the ordinary standard error: s / sqrt(n)
    low, high = clustered_interval([(0, 1.0), (1, 2.0), (2, 3.0), (3, 4.0)])
    assert (high - low) / 2 == pytest.approx(1.959964 * math.sqrt(5 / 3) / 2, rel=1e-6)
    assert clustered_interval([(0, 1.0), (0, 0.0)]) is None


def test_reward_stats_use_the_population_deviation():
    assert reward_stats([2, 4, 4, 4, 5, 5, 7, 9])["std"] == 2.0


def test_rewards_near_the_end_of_floats_add_up():
    huge = 1.7e308
    stats = reward_stats([huge, huge, -huge, -huge])
    assert stats == {"mean": 0.0, "median": 0.0, "std": huge, "min": -huge, "max": huge}
    assert reward_stats([huge, huge])["mean"] == huge
    low, high = clustered_interval([(0, 1e200), (1, 3e200)])
    assert (low, high) == pytest.approx((2e200 - Z_95 * 1e200, 2e200 + Z_95 * 1e200))
    assert clustered_interval([(0, huge), (1, -huge)]) is None  # its ends are no floats
    attempts = [{"row_index": i, "status": "success", "reward": huge} for i in range(3)]
    assert summarise(attempts, 1, 1.0, 3, 3)["results"]["score"] == pytest.approx(huge)

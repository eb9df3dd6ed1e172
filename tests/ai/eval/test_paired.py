"""The paired test against published numbers, brute force and exact binomials."""

from __future__ import annotations

import itertools
import math
import random
import statistics

import pytest

from osmosis_ai.eval import paired
from osmosis_ai.eval.paired import holm, paired_interval, sign_flip_normal, sign_flip_test

# Darwin's maize, crossed less self-fertilised plants in eighths of an inch (Fisher 1935, "The Design of Experiments", section 17).
MAIZE = [49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48]


def test_fishers_count_of_the_maize() -> None:
    """Section 21: of 32,768 patterns 863 have a sum of 314 or more, and as many -314 or less."""
    assert sum(MAIZE) == 314
    found = sign_flip_test([float(value) for value in MAIZE])
    assert found == paired.PairedTest(1726 / 32768, "sign_flip_exact")


@pytest.mark.parametrize("seed", range(5))
def test_every_pattern_counted_by_hand(seed: int) -> None:
    dice = random.Random(seed)
    differences = [dice.choice([0.0, 0.1, -0.2, 0.3, 1 / 3, -0.25]) * (1 + seed) for _ in range(11)]
    observed = abs(math.fsum(differences))
    patterns = [
        abs(math.fsum(sign * value for sign, value in zip(signs, differences, strict=True)))
        for signs in itertools.product((1, -1), repeat=len(differences))
    ]
    expected = sum(value >= observed - 1e-9 for value in patterns) / len(patterns)
    found = sign_flip_test(differences)
    assert found is not None
    assert found.p_value == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("better", "worse"), [(9, 2), (60, 40), (120, 80)])
def test_passes_are_the_exact_binomial_of_mcnemar(better: int, worse: int) -> None:
    n = better + worse
    tail = sum(math.comb(n, k) for k in range(max(better, worse), n + 1)) / 2**n
    found = sign_flip_test([1.0] * better + [-1.0] * worse + [0.0] * 50)
    assert found is not None
    assert found.p_value == pytest.approx(min(1.0, 2 * tail), rel=1e-9)


def test_many_rows_use_the_normal_limit_and_agree_with_the_exact_test() -> None:
    dice = random.Random(0)
    differences = [dice.randint(-5, 6) / 5 for _ in range(200)]
    exact = sign_flip_test(differences)
    limit = sign_flip_normal(math.fsum(differences), math.fsum(value**2 for value in differences))
    assert exact is not None
    assert limit.p_value == pytest.approx(exact.p_value, abs=0.006)
    assert sign_flip_test([1.0] * 301) is None
    assert sign_flip_test([dice.random() for _ in range(30)]) is None


def test_no_difference_is_no_evidence() -> None:
    for found in (sign_flip_test([]), sign_flip_test([0.0, 0.0]), sign_flip_normal(0.0, 0.0)):
        assert found is not None
        assert found.p_value == 1.0


def test_the_interval_is_the_textbooks() -> None:
    found = paired_interval(len(MAIZE), sum(MAIZE), sum(value**2 for value in MAIZE))
    half = 1.959963984540054 * statistics.stdev(MAIZE) / math.sqrt(15)
    assert found == pytest.approx((314 / 15 - half, 314 / 15 + half))
    assert paired_interval(1, 0.5, 0.25) is None
    assert paired_interval(3, 0.3, 0.03) == pytest.approx((0.1, 0.1))  # the same everywhere


def test_holms_own_example_of_order() -> None:
    """Worked by hand: 3 x .01 = .03, 2 x .02 = .04, .5; in the order given, never falling."""
    assert holm([0.5, 0.01, 0.02]) == pytest.approx([0.5, 0.03, 0.04])
    assert holm([0.04, 0.03]) == pytest.approx([0.06, 0.06])
    assert holm([0.9, 0.8]) == pytest.approx([1.0, 1.0])
    assert holm([]) == []

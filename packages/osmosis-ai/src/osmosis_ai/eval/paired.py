"""Whether two evaluations of the same rows differ.

Each row gives one difference of means. Rows are the unit: attempts of one row are not independent, and what makes a row hard makes
it hard for both (Miller 2024, "Adding Error Bars to Evals", section 4).
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from osmosis_ai.eval.results import Z_95

# The exact test is for at most so many differences, and gives up after so many additions (a tenth of a second).
EXACT_DIFFERENCES = 300
EXACT_STEPS = 2**17
_FINENESS = 10**6


@dataclass(frozen=True, slots=True)
class PairedTest:
    """``p_value`` of "no difference", two-sided, and how it was found."""

    p_value: float
    method: Literal["sign_flip_exact", "sign_flip_normal"]


def paired_interval(count: int, total: float, squares: float) -> tuple[float, float] | None:
    """95 % normal interval of a mean difference from the number, the sum and the sum of squares of the rows' differences.

    The variance has the correction G / (G - 1) for G rows. None with fewer than two rows.
    """
    if count < 2:
        return None
    mean = total / count
    variance = max(squares - total * mean, 0.0) / (count - 1)
    half = Z_95 * math.sqrt(variance / count)
    return mean - half, mean + half


def sign_flip_test(differences: Sequence[float]) -> PairedTest | None:
    """Permutation test of the mean difference: without an effect each row's difference could as well have the other sign.

    The share of all sign patterns whose sum is at least as far from 0 as the sum found (Fisher 1935, "The Design of
    Experiments", section 21). Differences of 0 change nothing and may be left out. None where there are too many differences to
    count every pattern; then :func:`sign_flip_normal` tells.
    """
    found = [difference for difference in differences if difference != 0]
    if not found:
        return PairedTest(1.0, "sign_flip_exact")
    if len(found) > EXACT_DIFFERENCES:
        return None
    whole = _whole_numbers(found)
    sums: Counter[int] = Counter({0: 1})
    steps = 0
    for size in map(abs, whole):
        flipped = Counter[int]()
        for value, ways in sums.items():
            flipped[value + size] += ways
            flipped[value - size] += ways
        sums = flipped
        steps += len(sums)
        if steps > EXACT_STEPS:
            return None
    bound = abs(sum(whole))
    as_far = sum(ways for value, ways in sums.items() if abs(value) >= bound)
    return PairedTest(as_far / 2 ** len(found), "sign_flip_exact")


def _whole_numbers(values: Sequence[float]) -> list[int]:
    """The values on a common scale, to a millionth of the largest, so that equal sums are equal."""
    largest = max(map(abs, values))
    parts = [Fraction(value / largest).limit_denominator(_FINENESS) for value in values]
    common = math.lcm(*(part.denominator for part in parts))
    return [int(part * common) for part in parts]


def sign_flip_normal(total: float, squares: float) -> PairedTest:
    """The same for many rows, from the sum and the sum of squares: under random signs the sum has mean 0 and variance ``squares``."""
    if squares <= 0:
        return PairedTest(1.0, "sign_flip_normal")
    return PairedTest(math.erfc(abs(total) / math.sqrt(2 * squares)), "sign_flip_normal")


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values adjusted for how many there are (Holm 1979, "A Simple Sequentially Rejective Multiple Test Procedure")."""
    adjusted = [0.0] * len(p_values)
    least = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        least = max(least, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = least
    return adjusted

"""Advantages of a prompt group: how much better a sample did than its siblings."""

from __future__ import annotations

import math
from collections.abc import Sequence

# Keeps a group of nearly equal rewards from being blown up when rewards are scaled.
_STD_EPSILON = 1e-4


def group_advantages(rewards: Sequence[float], *, scale_rewards: bool = False) -> list[float]:
    """Reward minus the mean of the group; with `scale_rewards` also divided by the group's standard deviation.

    The mean alone is the default: dividing gives groups that are almost always right or wrong more weight than groups
    in between (Liu et al. 2025, arXiv:2503.20783). Scaling is that of DeepSeekMath (arXiv:2402.03300), with the sample
    standard deviation (n - 1). Rewards must be finite; equal rewards give exact zeros.
    """
    for reward in rewards:
        if not math.isfinite(reward):
            raise ValueError(
                f"reward {reward} is not finite; an attempt without a reward does not belong in a group"
            )
    if not rewards:
        return []
    if min(rewards) == max(rewards):
        return [0.0] * len(rewards)
    mean = math.fsum(rewards) / len(rewards)
    centred = [reward - mean for reward in rewards]
    if not scale_rewards:
        return centred
    deviation = math.sqrt(math.fsum(c * c for c in centred) / (len(centred) - 1))
    return [c / (deviation + _STD_EPSILON) for c in centred]

"""What a sample is worth against the others of its prompt group."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence


def group_advantages(rewards: Sequence[float], *, scale_rewards: bool) -> list[float]:
    """Reward minus the mean of the group; with `scale_rewards` divided by the group's standard deviation.

    The deviation is the sample one (n - 1), as in GRPO (Shao et al., 2024, eq. 3 and its public implementations). It is
    off by default because it gives prompts whose rewards hardly differ the same weight as others ("Understanding
    R1-Zero-like training", Liu et al., 2025). Needs at least two rewards; equal ones give zeros.
    """
    mean = math.fsum(rewards) / len(rewards)
    centred = [reward - mean for reward in rewards]
    if not scale_rewards:
        return centred
    deviation = statistics.stdev(rewards)
    return [value / deviation if deviation > 0 else 0.0 for value in centred]

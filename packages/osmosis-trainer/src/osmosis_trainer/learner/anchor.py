"""Log-probabilities of the policy that sampled, when the policy that learns is a newer one.

The sampler's numbers depend in their last digits on which requests shared a pass. For rows of the current policy the loss
takes such a difference for none (`losses.ROUNDING`). For rows of an older policy the ratio is a real number, so the last
digits would reach the weights, and a run could not be repeated bitwise. The learner's own log-probabilities under the
policy that sampled depend on the rows alone: they stand in wherever both agree up to rounding.

A sampler that is another program differs by more than rounding. There both numbers are kept side by side: the loss corrects
for their difference (`learner.mismatch`) and takes its ratio to the learner's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from osmosis_trainer.engines.protocol import TrainingRow
from osmosis_trainer.learner.losses import ROUNDING


def anchor(
    rows: Sequence[TrainingRow], scores: Sequence[Sequence[float]], *, external: bool = False
) -> tuple[list[TrainingRow], dict[str, float]]:
    """The rows with `scores[i]` in place of the sampler's log-probabilities of row i, where they differ by rounding only;
    from an `external` sampler, with `scores[i]` as anchors beside them.

    Also returns how far both are apart: `mismatch_kl` (mean of exp(g) - g - 1, g = score - sampled) and `logprob_gap_max`.
    """
    anchored, divergence, largest, tokens = [], 0.0, 0.0, 0
    for row, given in zip(rows, scores, strict=True):
        trained = [place for place, mask in enumerate(row.mask) if mask]
        logprobs, anchors = list(row.logprobs), [0.0] * len(row.logprobs)
        for place, score in zip(trained, given, strict=True):
            gap = score - logprobs[place]
            divergence += math.exp(min(gap, 50.0)) - 1.0 - gap
            largest, tokens = max(largest, abs(gap)), tokens + 1
            anchors[place] = score
            if abs(gap) <= ROUNDING:
                logprobs[place] = score
        anchored.append(replace(row, anchors=anchors) if external else replace(row, logprobs=logprobs))
    return anchored, {"mismatch_kl": divergence / max(tokens, 1), "logprob_gap_max": largest}

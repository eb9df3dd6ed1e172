"""Early warning signs of a training that goes wrong, told as advice. Nothing is stopped or changed by them.

The thresholds are rules of thumb of ours, chosen to be silent on runs that learn; docs/training.md lists them.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

WINDOW = 3
# A sign that stays is told again after so many steps.
AGAIN_AFTER = 20

ENTROPY, ALIKE, CUT = "train/entropy_loss", "rollout/zero_variance_ratio", "rollout/truncated_ratio"
LENGTH, CLIP, EDITED = "rollout/response_lengths", "train/clip_ratio", "rollout/branch_ratio"
TRAINING, VALIDATION = "rollout/raw_reward", "eval/validation/reward"
WATCHED = (ENTROPY, ALIKE, CUT, LENGTH, CLIP, EDITED, TRAINING, VALIDATION)


@dataclass(frozen=True, slots=True)
class Series:
    """What is kept of a metric: the mean of its first values (at most WINDOW) and its last WINDOW values, oldest first."""

    first: float
    seen: int
    last: tuple[float, ...]

    def add(self, value: float) -> Series:
        """With one more value."""
        early = self.seen < WINDOW
        first = (self.first * self.seen + value) / (self.seen + 1) if early else self.first
        return Series(first, self.seen + 1, (*self.last, value)[-WINDOW:])

    @property
    def settled(self) -> bool:
        """Whether the last values are later than the first ones."""
        return self.seen >= 2 * WINDOW

    @property
    def recent(self) -> float:
        """The mean of the last values."""
        return statistics.fmean(self.last)


Known = Mapping[str, Series]


def _entropy(known: Known) -> str | None:
    s = known.get(ENTROPY)
    if s and s.settled and s.first > 0.05 and s.recent < 0.1 * s.first:
        return (
            f"entropy fell from {s.first:.3g} to {s.recent:.3g} nats: the policy hardly tries anything new. Lower "
            "[training].lr, or stop here and use the best checkpoint"
        )
    return None


def _alike(known: Known) -> str | None:
    s = known.get(ALIKE)
    if s and s.seen >= WINDOW and min(s.last) >= 0.8:
        return (
            f"{s.recent:.0%} of the prompt groups had equal rewards in all samples, so they taught nothing. Choose rows that are "
            "neither always solved nor never, give partial credit, or raise [training].n_samples_per_prompt"
        )
    return None


def _cut(known: Known) -> str | None:
    s = known.get(CUT)
    if s and s.seen >= WINDOW and s.recent >= 0.25 and s.recent >= s.first + 0.1:
        return (
            f"{s.recent:.0%} of the rollouts are cut off by a token limit, {s.first:.0%} were at the beginning. Raise "
            "[training].max_response_length or the agent's max_tokens, or check whether the reward likes length"
        )
    return None


def _longer(known: Known) -> str | None:
    s = known.get(LENGTH)
    if s and s.settled and s.first > 0 and s.recent >= 3 * s.first:
        return (
            f"answers grew from {s.first:.0f} to {s.recent:.0f} sampled tokens. If the task does not need that, the reward may pay "
            "for length: read some trajectories"
        )
    return None


def _clipped(known: Known) -> str | None:
    s = known.get(CLIP)
    if s and s.seen >= WINDOW and min(s.last) >= 0.2:
        return f"{s.recent:.0%} of the trained tokens are clipped: policy and sampler are far apart. Lower [training].lr"
    return None


def _edited(known: Known) -> str | None:
    s = known.get(EDITED)
    if s and s.seen >= WINDOW and min(s.last) >= 0.5:
        return (
            f"in {s.recent:.0%} of the rollouts the agent changed or dropped earlier turns, so a conversation becomes several "
            "training rows. That is right for some agents; if it is not meant, keep the message history as it was"
        )
    return None


def _overfitted(known: Known) -> str | None:
    training, validation = known.get(TRAINING), known.get(VALIDATION)
    if (
        training
        and validation
        and training.settled
        and validation.settled
        and training.recent >= training.first + 0.1
        and validation.recent <= validation.first - 0.05
    ):
        return (
            f"the training reward rose from {training.first:.2f} to {training.recent:.2f} while the validation reward fell from "
            f"{validation.first:.2f} to {validation.recent:.2f}. Use more rows or fewer epochs, and check that the grader cannot be "
            "fooled"
        )
    return None


SIGNS: dict[str, Callable[[Known], str | None]] = {
    "entropy": _entropy,
    "equal_groups": _alike,
    "truncation": _cut,
    "length": _longer,
    "clipping": _clipped,
    "edited_history": _edited,
    "overfitting": _overfitted,
}


@dataclass(slots=True)
class Advisor:
    """Watches the metrics of a run; part of its saved state."""

    series: dict[str, Series] = field(default_factory=dict)
    told: dict[str, int] = field(default_factory=dict)

    def look(self, step: int, values: Mapping[str, float]) -> list[str]:
        """Take in the metrics of a step; what there is to say now. A sign is told once, and again if it stays for long."""
        for key in WATCHED:
            if key in values:
                known = self.series.get(key, Series(0.0, 0, ()))
                self.series[key] = known.add(values[key])
        found: list[str] = []
        for name, sign in SIGNS.items():
            text = sign(self.series)
            if text is None:
                self.told.pop(name, None)
            elif name not in self.told or step - self.told[name] >= AGAIN_AFTER:
                self.told[name] = step
                found.append(text)
        return found

    def dump(self) -> dict[str, Any]:
        """Plain values for the saved state."""
        series = {key: [s.first, s.seen, *s.last] for key, s in self.series.items()}
        return {"series": series, "told": dict(self.told)}

    @classmethod
    def load(cls, content: Mapping[str, Any]) -> Advisor:
        """Inverse of `dump`; empty content is a new run."""
        series = {
            key: Series(first, int(seen), tuple(last))
            for key, (first, seen, *last) in content.get("series", {}).items()
        }
        return cls(series, dict(content.get("told", {})))

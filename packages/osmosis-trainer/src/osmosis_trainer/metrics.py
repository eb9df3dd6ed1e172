"""The numbers of a step, computed exactly as the table in docs/training.md defines them."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from osmosis_trainer.collect.groups import PromptGroup
from osmosis_trainer.collect.ledger import Batch

# Keys of the engine's metrics that are passed on as they are.
LEARNER_METRICS = (
    "train/loss",
    "train/entropy_loss",
    "train/kl",
    "train/ratio_max",
    "train/clip_ratio",
    "train/grad_norm",
    "train/sampler_mismatch_kl",
)


def rollout_metrics(groups: Sequence[PromptGroup], policy_version: int) -> dict[str, float]:
    """`rollout/*` over all prompt groups a step tried. Numbers that have nothing to be computed from are left out."""
    samples = [sample for group in groups for sample in group.samples]
    counted = [sample for sample in samples if sample.outcome != "skipped"]
    scored = [group.scores for group in groups if group.scores]
    rewards = [reward for scores in scored for reward in scores.values()]
    ran = [sample for sample in samples if sample.counts.turns]
    valid_groups = [group for group in groups if group.verdict != "too_few_valid"]
    values = {
        "rollout/raw_reward": _mean(rewards),
        "rollout/reward_std": _mean(
            [statistics.pstdev(scores.values()) for scores in scored if len(scores) > 1]
        ),
        "rollout/response_lengths": _mean([sample.counts.response_tokens for sample in ran]),
        "rollout/total_lengths": _mean([sample.counts.total_tokens for sample in ran]),
        "rollout/truncated_ratio": _mean([sample.counts.truncated for sample in ran]),
        "rollout/turns": _mean([sample.counts.turns for sample in ran]),
        "rollout/tool_error_ratio": _ratio(
            sum(sample.counts.tool_errors for sample in ran), sum(sample.counts.tool_calls for sample in ran)
        ),
        "rollout/invalid_ratio": _mean([sample.outcome == "invalid" for sample in counted]),
        "rollout/failed_ratio": _mean([sample.outcome == "failed" for sample in counted]),
        "rollout/skipped_ratio": _mean([sample.outcome == "skipped" for sample in samples]),
        "rollout/zero_variance_ratio": _mean([group.verdict == "zero_variance" for group in valid_groups]),
        "rollout/branch_ratio": _mean([sample.counts.branches > 0 for sample in ran]),
        "rollout/retokenized_turns": float(sum(sample.counts.retokenized_turns for sample in ran)),
        "rollout/staleness": _mean([policy_version - sample.policy_version for sample in ran]),
        "rollout/groups_tried": float(len(groups)),
        "rollout/groups_trained": float(sum(group.verdict == "trained" for group in groups)),
    }
    return finite(values)


def ledger_metrics(ledger: Mapping[str, int]) -> dict[str, float]:
    """`ledger/<reason>`: sampled tokens by what became of them; `train/masked_ratio`: the share that is not trained."""
    total = sum(ledger.values())
    values = {f"ledger/{reason}": float(count) for reason, count in ledger.items()}
    values["train/masked_ratio"] = 1.0 - ledger.get("trained", 0) / total if total else math.nan
    return finite(values)


def learner_metrics(*sources: Mapping[str, float]) -> dict[str, float]:
    """The engine's numbers under their names of the table."""
    merged = {
        key if "/" in key else f"train/{key}": value for source in sources for key, value in source.items()
    }
    return finite({key: merged[key] for key in LEARNER_METRICS if key in merged})


def reward_interval(samples_by_row: Sequence[Sequence[float]]) -> tuple[float, float] | None:
    """Mean reward and the half-width of its 95 % interval: 1.96 standard errors of the row means.

    Samples of one row are not independent of each other, rows are: the row is the unit. None without any reward; the
    half-width is NaN with fewer than two rows.
    """
    means = [statistics.fmean(rewards) for rewards in samples_by_row if rewards]
    if not means:
        return None
    half = 1.96 * statistics.stdev(means) / math.sqrt(len(means)) if len(means) > 1 else math.nan
    return statistics.fmean(means), half


def finite(values: Mapping[str, float]) -> dict[str, float]:
    """The values that are numbers."""
    return {key: float(value) for key, value in values.items() if math.isfinite(value)}


class Stopwatch:
    """Wall-clock seconds per part of a step, as `perf/<part>_seconds`."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._start = clock()
        self._spent: dict[str, float] = {}

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Add the time of the block to `name`."""
        start = self._clock()
        try:
            yield
        finally:
            self._spent[name] = self._spent.get(name, 0.0) + self._clock() - start

    def seconds(self, name: str) -> float:
        """Seconds spent in `name` so far."""
        return self._spent.get(name, 0.0)

    def metrics(self) -> dict[str, float]:
        """All parts, and `perf/step_seconds` since the stopwatch was made."""
        values = {f"perf/{name}_seconds": spent for name, spent in self._spent.items()}
        return values | {"perf/step_seconds": self._clock() - self._start}


def performance(
    groups: Sequence[PromptGroup], batch: Batch, watch: Stopwatch, last_save_s: float
) -> dict[str, float]:
    """`perf/*` of a step. `last_save_s`: seconds that saving the state of the step before took."""
    attempts = [attempt for group in groups for attempt in group.tries]
    sampled = sum(attempt.counts.response_tokens for attempt in attempts)
    trained = sum(len(row.token_ids) for row in batch.rows)
    values = watch.metrics()
    values["perf/checkpoint_seconds"] = watch.seconds("checkpoint") + last_save_s
    values["perf/rollout_seconds"] = _mean([attempt.duration_ms / 1000 for attempt in attempts])
    values["perf/tokens_per_second_sampling"] = _ratio(sampled, watch.seconds("sample"))
    values["perf/tokens_per_second_training"] = _ratio(trained, watch.seconds("learn"))
    return finite(values)


def _mean(values: Sequence[float]) -> float:
    return statistics.fmean(values) if values else math.nan


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else math.nan

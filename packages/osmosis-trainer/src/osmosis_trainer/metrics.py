"""The numbers of a step, computed exactly as the table in docs/training.md defines them."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from osmosis_trainer.chat.parsed import ParseOutcome
from osmosis_trainer.collect.attempt import Attempt
from osmosis_trainer.collect.batch import Batch
from osmosis_trainer.collect.groups import PromptGroup
from osmosis_trainer.gateway.ledger import Ledger, TokenFate
from osmosis_trainer.gateway.trace import Branch, SessionTrace

_TOOL_CALL_ERRORS = (ParseOutcome.MALFORMED_CALL, ParseOutcome.UNCLOSED_CALL, ParseOutcome.UNKNOWN_TOOL)

# The engine's names and those of the table.
LEARNER_METRICS = {
    "loss": "train/loss",
    "entropy": "train/entropy_loss",
    "kl": "train/kl",
    "ratio_max": "train/ratio_max",
    "clip_ratio": "train/clip_ratio",
    "grad_norm": "train/grad_norm",
    "mismatch_kl": "train/sampler_mismatch_kl",
    "logprob_gap_max": "train/sampler_gap_max",
    "mismatch_truncated": "train/mismatch_truncated_ratio",
    "mismatch_masked": "train/mismatch_masked_ratio",
    "staleness_kl": "train/staleness_kl",
    "tokens": "train/tokens",
}


def rollout_metrics(groups: Sequence[PromptGroup], policy_version: int) -> dict[str, float]:
    """`rollout/*` over all prompt groups a step tried. Numbers that have nothing to be computed from are left out."""
    samples = [sample for group in groups for sample in group.samples]
    counted = [sample for sample in samples if sample.outcome != "skipped"]
    scored = [group.scores for group in groups if group.scores]
    compared = [group for group in groups if group.verdict != "too_few_valid"]
    values = {
        "rollout/raw_reward": _mean([reward for scores in scored for reward in scores.values()]),
        "rollout/reward_std": _mean(
            [statistics.pstdev(scores.values()) for scores in scored if len(scores) > 1]
        ),
        "rollout/invalid_ratio": _mean([sample.outcome == "invalid" for sample in counted]),
        "rollout/failed_ratio": _mean([sample.outcome == "failed" for sample in counted]),
        "rollout/skipped_ratio": _mean([sample.outcome == "skipped" for sample in samples]),
        "rollout/zero_variance_ratio": _mean([group.verdict == "zero_variance" for group in compared]),
        "rollout/groups_tried": float(len(groups)),
        "rollout/groups_trained": float(sum(group.verdict == "trained" for group in groups)),
    }
    traces = [sample.trace for sample in samples if sample.trace.calls]
    return finite(values | trace_metrics(traces, policy_version))


def trace_metrics(traces: Sequence[SessionTrace], policy_version: int) -> dict[str, float]:
    """The part of `rollout/*` that comes from the model calls of rollouts that made any."""
    calls = [call for trace in traces for call in trace.calls]
    outcomes = [call.outcome for call in calls]
    wrong = sum(outcome in _TOOL_CALL_ERRORS for outcome in outcomes)
    return {
        "rollout/response_lengths": _mean([trace.sampled_tokens for trace in traces]),
        "rollout/total_lengths": _mean([trace.total_tokens for trace in traces]),
        "rollout/truncated_ratio": _mean([trace.truncated for trace in traces]),
        "rollout/turns": _mean([len(trace.calls) for trace in traces]),
        "rollout/tool_error_ratio": _ratio(wrong, wrong + outcomes.count(ParseOutcome.TOOL_CALLS)),
        "rollout/branch_ratio": _mean([len(trace.leaves()) > 1 for trace in traces]),
        "rollout/retokenized_turns": float(sum(call.branch == Branch.EDITED for call in calls)),
        "rollout/staleness": _mean([policy_version - call.policy_version for call in calls]),
    }


def ledger_metrics(ledger: Ledger) -> dict[str, float]:
    """`ledger/<fate>` in tokens, and `train/masked_ratio`: the share of sampled tokens that is not trained."""
    fates = ledger.tokens
    sampled = ledger.total - fates[TokenFate.CONTEXT] - fates[TokenFate.BRANCH_DUPLICATE]
    masked = 1.0 - fates[TokenFate.TRAINED] / sampled if sampled else math.nan
    return finite(ledger.metrics() | {"train/masked_ratio": masked})


def learner_metrics(*sources: Mapping[str, float]) -> dict[str, float]:
    """The engine's numbers under their names of the table."""
    merged = {key: value for source in sources for key, value in source.items()}
    return finite({name: merged[key] for key, name in LEARNER_METRICS.items() if key in merged})


def reward_interval(samples_by_row: Sequence[Sequence[float]]) -> tuple[float, float] | None:
    """Mean reward and the half-width of its 95 % interval (Student's t over the row means).

    Samples of one row are not independent of each other, rows are: the row is the unit. None without any reward; the
    half-width is NaN with fewer than two rows.
    """
    means = [statistics.fmean(rewards) for rewards in samples_by_row if rewards]
    if not means:
        return None
    if len(means) < 2:
        return means[0], math.nan
    half = student_t_975(len(means) - 1) * statistics.stdev(means) / math.sqrt(len(means))
    return statistics.fmean(means), half


def student_t_975(freedom: int) -> float:
    """The 97.5 % quantile of Student's t: exact for 1 and 2 degrees of freedom, else within 0.1 %.

    Cornish-Fisher expansion, Abramowitz and Stegun, 26.7.5.
    """
    if freedom == 1:
        return math.tan(math.pi * 0.475)
    if freedom == 2:
        return 0.95 * math.sqrt(2 / (1 - 0.95**2))
    z, n = 1.959963984540054, freedom
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + math.fsum(term / n**power for power, term in enumerate(terms, start=1))


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
            self.add(name, self._clock() - start)

    def add(self, name: str, seconds: float) -> None:
        """Count time that was measured elsewhere."""
        self._spent[name] = self._spent.get(name, 0.0) + seconds

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
    sampled = sum(attempt.trace.sampled_tokens for attempt in attempts)
    trained = sum(len(row.token_ids) for row in batch.rows)
    values = watch.metrics()
    values["perf/checkpoint_seconds"] = watch.seconds("checkpoint") + last_save_s
    values["perf/rollout_seconds"] = _mean([attempt.duration_ms / 1000 for attempt in attempts])
    values["perf/agent_seconds"] = _mean([_outside_the_model_s(attempt) for attempt in attempts])
    values["perf/tokens_per_second_sampling"] = _ratio(sampled, watch.seconds("sample"))
    values["perf/tokens_per_second_training"] = _ratio(trained, watch.seconds("learn"))
    return finite(values)


def _outside_the_model_s(attempt: Attempt) -> float:
    """Seconds of a rollout in which no model call was open: agent, tools, grader, transport."""
    spans = sorted((call.started_s, call.started_s + call.seconds) for call in attempt.trace.calls)
    covered, end = 0.0, 0.0
    for start, stop in spans:
        covered += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return max(0.0, attempt.duration_ms / 1000 - covered)


def _mean(values: Sequence[float]) -> float:
    return statistics.fmean(values) if values else math.nan


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else math.nan

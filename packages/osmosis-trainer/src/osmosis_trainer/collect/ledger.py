"""From prompt groups to training rows, with a ledger: every sampled token is trained once or has a reason not to be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from osmosis_trainer.collect.attempt import Attempt
from osmosis_trainer.collect.groups import PromptGroup
from osmosis_trainer.engines.protocol import TrainingRow

TRAINED = "trained"

# Rewards of one group, in sample order, to advantages.
Advantages = Callable[[Sequence[float]], Sequence[float]]


@dataclass(frozen=True, slots=True)
class Batch:
    """What one step trains. `ledger` counts sampled tokens by what became of them; `advantages` is keyed by rollout id."""

    rows: list[TrainingRow]
    ledger: dict[str, int]
    advantages: dict[str, float]


def make_batch(groups: Sequence[PromptGroup], advantages: Advantages, *, mask_truncated: bool) -> Batch:
    """Turn groups into rows in slot, sample and sequence order; only groups whose rewards differ give rows."""
    rows: list[TrainingRow] = []
    ledger: Counter[str] = Counter()
    weights: dict[str, float] = {}
    for group in groups:
        scores = group.scores
        mine = (
            dict(zip(scores, advantages(list(scores.values())), strict=True))
            if group.verdict == "trained"
            else {}
        )
        last = {sample.rollout_id for sample in group.samples}
        for attempt in group.tries:
            reason = _reason(group, attempt, last, mask_truncated)
            ledger.update(attempt.ledger)
            ledger[reason] += sum(sum(row.mask) for row in attempt.rows)
            if attempt.rollout_id in last and attempt.sample_index in mine:
                weights[attempt.rollout_id] = mine[attempt.sample_index]
            if reason == TRAINED:
                rows += _rows(group, attempt, mine[attempt.sample_index])
    return Batch(rows, {reason: count for reason, count in sorted(ledger.items()) if count}, weights)


def _reason(group: PromptGroup, attempt: Attempt, last: set[str], mask_truncated: bool) -> str:
    if attempt.rollout_id not in last or attempt.outcome == "invalid":
        return "invalid_reward"
    if attempt.outcome == "skipped":
        return "skipped"
    if group.verdict != "trained":
        return group.verdict
    return "truncated" if attempt.counts.truncated and mask_truncated else TRAINED


def _rows(group: PromptGroup, attempt: Attempt, advantage: float) -> list[TrainingRow]:
    name = f"{attempt.step}/{group.slot}/{attempt.row_index}/{attempt.sample_index}/{attempt.attempt}"
    return [
        TrainingRow(row.token_ids, row.mask, row.logprobs, advantage, group.slot, f"{name}/{place}")
        for place, row in enumerate(attempt.rows)
        if any(row.mask)
    ]

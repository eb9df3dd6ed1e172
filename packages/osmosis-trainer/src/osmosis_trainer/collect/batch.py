"""From prompt groups to training rows: every sampled token is trained once or the ledger says why not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from osmosis_trainer.collect.attempt import Attempt
from osmosis_trainer.collect.groups import PromptGroup
from osmosis_trainer.engines.protocol import TrainingRow
from osmosis_trainer.gateway.ledger import Ledger, TokenFate
from osmosis_trainer.gateway.rows import rows, unused

# Rewards of one group, in sample order, to advantages.
Advantages = Callable[[Sequence[float]], Sequence[float]]

_UNTRAINED = {"zero_variance": TokenFate.ZERO_VARIANCE, "too_few_valid": TokenFate.TOO_FEW_VALID}


@dataclass(frozen=True, slots=True)
class Batch:
    """What one step trains. `ledger` counts tokens by what became of them; `advantages` is keyed by rollout id."""

    rows: list[TrainingRow]
    ledger: Ledger
    advantages: dict[str, float]


def make_batch(
    groups: Sequence[PromptGroup],
    advantages: Advantages,
    *,
    mask_truncated: bool,
    oldest_version: int | None = None,
    max_row_tokens: int | None = None,
) -> Batch:
    """Turn groups into rows in slot, sample and sequence order; only groups whose rewards differ give rows.

    Rows are named by the place of their attempt, not by its random rollout id: the names are the same when a run is
    repeated.
    """
    found: list[TrainingRow] = []
    ledger = Ledger()
    weights: dict[str, float] = {}
    for group in groups:
        scores = group.scores
        trained = group.verdict == "trained"
        mine = dict(zip(scores, advantages(list(scores.values())), strict=True)) if trained else {}
        last = {sample.rollout_id for sample in group.samples}
        for attempt in group.tries:
            fate = _fate(group, attempt, last)
            if fate is not TokenFate.TRAINED:
                unused(attempt.trace, fate, ledger)
                continue
            advantage = weights[attempt.rollout_id] = mine[attempt.sample_index]
            given = rows(
                attempt.trace,
                advantage=advantage,
                group=group.slot,
                mask_truncated=mask_truncated,
                oldest_version=oldest_version,
                max_row_tokens=max_row_tokens,
                ledger=ledger,
            )
            found += [replace(row, row_id=f"{attempt.key}/{place}") for place, row in enumerate(given)]
    return Batch(found, ledger, weights)


def _fate(group: PromptGroup, attempt: Attempt, last: set[str]) -> TokenFate:
    if attempt.rollout_id not in last or attempt.outcome == "invalid":
        return TokenFate.INVALID_REWARD
    if attempt.outcome == "skipped":
        return TokenFate.SKIPPED
    return _UNTRAINED.get(group.verdict, TokenFate.TRAINED)

"""Every sampled token is trained exactly once or carries a reason."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from osmosis_trainer.collect.attempt import Attempt
from osmosis_trainer.collect.batch import Batch, make_batch
from osmosis_trainer.collect.groups import PromptGroup
from osmosis_trainer.gateway.ledger import TokenFate
from osmosis_trainer.learner.advantages import group_advantages
from osmosis_trainer.metrics import ledger_metrics

MakeGroup = Callable[..., PromptGroup]
MakeAttempt = Callable[..., Attempt]


def fates(batch: Batch) -> dict[str, int]:
    """The ledger without the prompts."""
    return {fate.value: count for fate, count in batch.ledger.tokens.items() if fate is not TokenFate.CONTEXT}


def test_advantages_by_hand(group: MakeGroup) -> None:
    batch = make_batch([group(1.0, 0.0, "invalid", 0.5)], group_advantages, mask_truncated=True)
    assert [row.advantage for row in batch.rows] == [0.5, -0.5, 0.0]
    assert [row.token_ids for row in batch.rows] == [[7, 8, 1, 2, 3, 4]] * 3
    assert [row.mask for row in batch.rows] == [[0, 0, 1, 1, 1, 1]] * 3
    assert batch.advantages == {"r0-0-0": 0.5, "r0-1-0": -0.5, "r0-3-0": 0.0}
    assert fates(batch) == {"trained": 12, "invalid_reward": 4}


def test_groups_that_teach_nothing_give_no_rows(group: MakeGroup) -> None:
    groups = [group(1.0, 1.0), group(1.0, "invalid", slot=1), group(1.0, "skipped", slot=2)]
    batch = make_batch(groups, group_advantages, mask_truncated=True)
    assert batch.rows == []
    assert fates(batch) == {"invalid_reward": 4, "skipped": 4, "too_few_valid": 8, "zero_variance": 8}


@pytest.mark.parametrize("masked", [True, False])
def test_truncated_answers_keep_their_reward_and_lose_their_loss(attempt: MakeAttempt, masked: bool) -> None:
    samples = [attempt(0, 1.0), attempt(1, 0.0, truncated=True)]
    batch = make_batch([PromptGroup(0, 40, samples, samples)], group_advantages, mask_truncated=masked)
    assert batch.rows[0].advantage == 0.5
    assert len(batch.rows) == (1 if masked else 2)
    assert fates(batch) == ({"trained": 4, "truncated": 4} if masked else {"trained": 8})
    assert ledger_metrics(batch.ledger)["train/masked_ratio"] == (0.5 if masked else 0.0)


def test_earlier_tries_are_counted_but_not_trained(attempt: MakeAttempt) -> None:
    tries = [attempt(0), attempt(0, 1.0, number=1), attempt(1, 0.0)]
    batch = make_batch([PromptGroup(0, 40, tries[1:], tries)], group_advantages, mask_truncated=True)
    assert [row.row_id for row in batch.rows] == ["train/1/0/40/0/1/0", "train/1/0/40/1/0/0"]
    assert fates(batch) == {"trained": 8, "invalid_reward": 4}


def test_every_token_is_in_the_ledger_exactly_once(attempt: MakeAttempt) -> None:
    dice = random.Random(0)
    for _ in range(200):
        groups, made = [], 0
        for slot in range(dice.randrange(1, 4)):
            samples: list[Attempt] = []
            tries: list[Attempt] = []
            for index in range(dice.randrange(2, 5)):
                for number in range(dice.randrange(1, 3)):
                    outcome = dice.choice(["graded", "failed", "skipped", "invalid"])
                    reward = float(dice.randrange(2)) if outcome == "graded" else None
                    cut = dice.random() < 0.3
                    tries.append(attempt(index, reward, outcome, number=number, slot=slot, truncated=cut))
                    made += 6
                samples.append(tries[-1])
            groups.append(PromptGroup(slot, 40 + slot, samples, tries))
        batch = make_batch(groups, group_advantages, mask_truncated=True)
        assert batch.ledger.total == made
        assert sum(sum(row.mask) for row in batch.rows) == batch.ledger.tokens[TokenFate.TRAINED]
        assert len({row.row_id for row in batch.rows}) == len(batch.rows)

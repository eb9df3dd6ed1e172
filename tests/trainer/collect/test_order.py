"""Rows: what is held out is never trained on, and every epoch sees every row once."""

from __future__ import annotations

import pytest

from osmosis_trainer.collect.attempt import AttemptKey
from osmosis_trainer.collect.order import DataOrder, derive_seed, split_rows


def test_validation_rows_are_never_trained_on() -> None:
    split = split_rows(100, 20, seed=3)
    assert len(split.validation) == 20
    assert sorted(split.training + split.validation) == list(range(100))
    assert set(DataOrder(split.training, 3).take(400)) == set(split.training)


def test_the_split_depends_on_its_seed_alone() -> None:
    assert split_rows(50, 10, 1) == split_rows(50, 10, 1)
    assert split_rows(50, 10, 1).validation != split_rows(50, 10, 2).validation
    # Holding out fewer rows holds out some of the same rows.
    assert set(split_rows(50, 5, 1).validation) < set(split_rows(50, 10, 1).validation)


def test_every_epoch_is_its_own_shuffle_of_all_rows() -> None:
    order = DataOrder(list(range(10, 20)), seed=0)
    first, second = order.take(10), order.take(10)
    assert sorted(first) == sorted(second) == list(range(10, 20))
    assert first != second
    assert first != sorted(first)


def test_an_order_continues_anywhere() -> None:
    whole = DataOrder(list(range(7)), seed=5).take(30)
    order = DataOrder(list(range(7)), seed=5)
    order.take(9)
    assert DataOrder(list(range(7)), seed=5, position=order.position).take(21) == whole[9:]


def test_the_order_is_the_same_on_every_machine_and_version() -> None:
    """A resume may happen anywhere, so these numbers are part of the format."""
    assert derive_seed("epoch", 0, 0, 1) == 3849187646708977157
    assert DataOrder(list(range(8)), seed=0).take(8) == [6, 2, 0, 1, 7, 5, 4, 3]


def test_the_digest_tells_other_rows_and_other_seeds() -> None:
    digests = {
        DataOrder(rows, seed).digest() for rows, seed in (([1, 2, 3], 0), ([1, 2, 4], 0), ([1, 2, 3], 1))
    }
    assert len(digests) == 3


@pytest.mark.parametrize("change", ["phase", "step", "slot", "row_index", "sample_index", "attempt"])
def test_every_part_of_a_key_changes_its_seed(change: str) -> None:
    key = AttemptKey("train", 1, 2, 3, 4, 5)
    other = key._replace(**{change: "eval" if change == "phase" else 9})
    assert key.seed(0) != other.seed(0)
    assert key.seed(0) != key.seed(1)
    assert 0 <= key.seed(0) < 2**63

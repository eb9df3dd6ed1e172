"""The status machine of runs allows exactly its moves."""

from __future__ import annotations

import itertools

import pytest

from osmosis_platform.errors import Conflict
from osmosis_platform.runs.models import TERMINAL, Run
from osmosis_platform.runs.status import transition

STATUSES = ("pending", "running", "finished", "failed", "stopped", "crashed")
COMMON = {
    ("pending", "running"), ("pending", "failed"), ("pending", "stopped"),
    ("running", "finished"), ("running", "failed"), ("running", "stopped"),
}  # fmt: skip
ALLOWED = {
    "train": COMMON | {("running", "crashed")},
    "eval": COMMON | {("finished", "pending"), ("failed", "pending"), ("stopped", "pending")},
}


def run(kind: str, status: str) -> Run:
    return Run(kind=kind, status=status, name="calm-heron", round=0, run_token_hash="x")


@pytest.mark.parametrize("kind", ["train", "eval"])
def test_every_move(kind: str) -> None:
    for before, after in itertools.permutations(STATUSES, 2):
        if kind == "eval" and before == "crashed":
            continue
        row = run(kind, before)
        if (before, after) in ALLOWED[kind]:
            assert transition(row, after)
            assert row.status == after
        else:
            with pytest.raises(Conflict, match="calm-heron is"):
                transition(row, after)
            assert row.status == before


def test_staying_is_no_move() -> None:
    row = run("train", "running")
    assert not transition(row, "running")
    assert row.started_at is None


@pytest.mark.parametrize("status", sorted(TERMINAL - {"killed", "crashed"}))
def test_an_end_is_dated_and_ends_the_token(status: str) -> None:
    row = run("eval", "running")
    transition(row, status, error="why", error_type="x")
    assert row.completed_at is not None
    assert row.run_token_hash is None
    transition(row, "pending")
    assert (row.completed_at, row.error, row.round) == (None, None, 1)

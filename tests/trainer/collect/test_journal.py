"""The journal gives back exactly what was finished."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from osmosis_trainer.collect.attempt import Attempt
from osmosis_trainer.collect.journal import Journal, drop_journals, journal_steps
from osmosis_trainer.errors import StateError

MakeAttempt = Callable[..., Attempt]


def test_a_finished_attempt_comes_back_bit_for_bit(tmp_path: Path, attempt: MakeAttempt) -> None:
    written = [attempt(0, 0.1 + 0.2), attempt(1, None), attempt(2, None, "failed", message="ü\n\r\u2028")]
    with Journal(tmp_path, 1) as journal:
        for one in written:
            journal.append(one)
    with Journal(tmp_path, 1) as again:
        assert list(again.finished.values()) == written
        assert again.finished[written[0].key].trace.calls[0].logprobs[3].hex() == (-0.1 / 3).hex()


def test_a_torn_last_line_is_cut_off_and_the_attempt_can_be_written_again(
    tmp_path: Path, attempt: MakeAttempt
) -> None:
    with Journal(tmp_path, 1) as journal:
        journal.append(attempt(0, 1.0))
        journal.append(attempt(1, 1.0))
    journal.path.write_bytes(journal.path.read_bytes()[:-5])
    with Journal(tmp_path, 1) as again:
        assert list(again.finished) == [attempt(0, 1.0).key]
        again.append(attempt(1, 0.0))
    with Journal(tmp_path, 1) as third:
        assert [one.reward for one in third.finished.values()] == [1.0, 0.0]


def test_a_damaged_line_is_an_error_that_names_its_place(tmp_path: Path, attempt: MakeAttempt) -> None:
    with Journal(tmp_path, 1) as journal:
        journal.append(attempt(0, 1.0))
        journal.append(attempt(1, 1.0))
    content = journal.path.read_bytes()
    journal.path.write_bytes(b"\x00" + content[1:])
    with pytest.raises(StateError, match=r"step-1\.jsonl, line 1"):
        Journal(tmp_path, 1)


def test_an_attempt_is_finished_once(tmp_path: Path, attempt: MakeAttempt) -> None:
    with Journal(tmp_path, 1) as journal:
        journal.append(attempt(0, 1.0))
        with pytest.raises(ValueError, match="already finished"):
            journal.append(attempt(0, 0.0))


def test_journals_of_saved_steps_are_dropped(tmp_path: Path) -> None:
    for step in (9, 10, 11):
        Journal(tmp_path, step).close()
    drop_journals(tmp_path, before=10)
    assert journal_steps(tmp_path) == [10, 11]

"""Names of runs are readable and unique in their workspace."""

from __future__ import annotations

import re
from typing import Any

import pytest

from osmosis_ai import run_names
from osmosis_platform.context import Platform
from osmosis_platform.runs import names
from osmosis_platform.runs.models import Run


def test_words_are_plain_and_distinct() -> None:
    for words in (run_names.ADJECTIVES, run_names.ANIMALS):
        assert len(set(words)) == len(words) > 80
        assert all(re.fullmatch("[a-z]+", word) for word in words)


def test_a_taken_name_is_not_given_again(
    platform: Platform, workshop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_names, "ADJECTIVES", ["calm"])
    monkeypatch.setattr(run_names, "ANIMALS", ["heron", "otter"])
    given = set()
    with platform.database.write() as session:
        for _ in range(4):
            name = names.unused_name(session, workshop.town.acme.id)
            assert name not in given
            given.add(name)
            session.add(
                Run(
                    workspace_id=workshop.town.acme.id, kind="eval", name=name, creator_id=workshop.town.ada.user.id,
                    rollout_name="echo", entrypoint="main.py", commit_sha="0" * 40, model_path="m",
                    dataset_id=workshop.dataset_id, config={},
                )
            )  # fmt: skip
            session.flush()
        assert {"calm-heron", "calm-otter"} <= given
        assert names.unused_name(session, workshop.town.other.id) in ("calm-heron", "calm-otter")

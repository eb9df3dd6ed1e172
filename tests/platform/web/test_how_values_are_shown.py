"""Values as people read them: settings as a config writes them, intervals inside of what can be, times in one unit."""

from __future__ import annotations

from typing import Any

import pytest

from osmosis_platform.runs.pages import interval_note
from osmosis_platform.web import pages


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (True, "true"),
        (False, "false"),
        (None, "–"),
        (4e-05, "4e-05"),
        (1.0, "1.0"),
        (3, "3"),
        ("osmosis/tiny", "osmosis/tiny"),
        ([True, None], "[true, null]"),
        ({"é": 1}, '{"é": 1}'),
    ],
)
def test_settings_are_written_as_in_a_config(value: object, shown: str) -> None:
    assert pages.setting(value) == shown


@pytest.mark.parametrize(
    ("low", "high", "rewards", "shown"),
    [
        (-0.01, 0.23, {"min": 0.0, "max": 1.0}, "95 % interval 0.00 to 0.23"),
        (0.91, 1.04, {"min": 0.5, "max": 1.0}, "95 % interval 0.91 to 1.00"),
        (-0.01, 1.20, {"min": 0.0, "max": 1.5}, "95 % interval -0.01 to 1.20"),
        (-0.50, 0.10, {"min": -1.0, "max": 1.0}, "95 % interval -0.50 to 0.10"),
        (-0.01, 0.23, {}, "95 % interval -0.01 to 0.23"),
    ],
)
def test_the_interval_of_rewards_from_0_to_1_ends_there(
    low: float, high: float, rewards: dict[str, Any], shown: str
) -> None:
    results = {"confidence": {"score": {"low": low, "high": high}}, "reward_stats": rewards}
    assert interval_note(results) == shown


def test_without_an_interval_there_is_no_note() -> None:
    assert interval_note({}) == ""
    assert interval_note({"confidence": {}, "reward_stats": {}}) == ""

"""A run that only fails ends with the reasons."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from osmosis_trainer.collect.groups import PromptGroup
from osmosis_trainer.collect.health import HealthWindow, StepHealth, UnhealthyRunError

MakeGroup = Callable[..., PromptGroup]


def test_more_than_a_fifth_invalid_over_three_steps_fails_with_the_top_reasons(group: MakeGroup) -> None:
    window = HealthWindow()
    bad = StepHealth.of([group(1.0, 0.0, 1.0, "invalid")])
    window.add(bad, last_step=False)
    window.add(bad, last_step=False)
    with pytest.raises(UnhealthyRunError, match=r"3 of 12 samples .* 3 x agent_error: it broke"):
        window.add(bad, last_step=False)


def test_a_step_without_any_valid_sample_ends_the_run_at_once(group: MakeGroup) -> None:
    window = HealthWindow()
    window.add(StepHealth.of([group(*[1.0] * 8)]), last_step=False)
    window.add(StepHealth.of([group(*["invalid"] * 7)]), last_step=False)
    with pytest.raises(UnhealthyRunError, match="8 of 8 samples of the last step"):
        window.add(StepHealth.of([group(*["invalid"] * 8)]), last_step=False)


def test_a_fifth_is_allowed_and_good_steps_push_bad_ones_out(group: MakeGroup) -> None:
    window = HealthWindow()
    for _ in range(4):
        window.add(StepHealth.of([group(1.0, 0.0, 1.0, 0.0, "invalid")]), last_step=False)
    window.add(StepHealth.of([group(*["invalid"] * 2, *[1.0] * 8)]), last_step=True)
    assert len(window.steps) == 3


def test_a_short_run_is_judged_at_its_end(group: MakeGroup) -> None:
    window = HealthWindow()
    window.add(StepHealth.of([group("invalid", "invalid")]), last_step=False)
    with pytest.raises(UnhealthyRunError, match="4 of 4 samples of the last 2 steps"):
        window.add(StepHealth.of([group("invalid", "invalid")]), last_step=True)


def test_skipped_samples_count_nowhere_but_cannot_be_all(group: MakeGroup) -> None:
    assert StepHealth.of([group(1.0, "skipped", "invalid")]).counted == 2
    with pytest.raises(UnhealthyRunError, match="removed every sample"):
        HealthWindow().add(StepHealth.of([group("skipped", "skipped")]), last_step=True)


def test_an_agent_that_always_fails_is_not_trained_for_ever(group: MakeGroup) -> None:
    window = HealthWindow()
    failing = StepHealth.of([group("failed", "failed")])
    window.add(failing, last_step=False)
    window.add(failing, last_step=False)
    with pytest.raises(UnhealthyRunError, match="the agent failed in every one of the 6 samples"):
        window.add(failing, last_step=False)


def test_the_window_survives_a_restart(group: MakeGroup) -> None:
    window = HealthWindow()
    window.add(StepHealth.of([group(1.0, "invalid")]), last_step=False)
    assert HealthWindow.load(window.dump()) == window

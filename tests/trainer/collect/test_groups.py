"""What samples are worth, and which groups teach."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from osmosis_trainer.collect.groups import PromptGroup


@pytest.mark.parametrize(
    ("outcomes", "verdict"),
    [
        ((1.0, 0.0, 0.5), "trained"),
        ((1.0, 1.0, 1.0), "zero_variance"),
        ((1.0, "invalid", "invalid"), "too_few_valid"),
        (("invalid", "invalid"), "too_few_valid"),
        ((1.0, "skipped", "skipped"), "too_few_valid"),
        ((1.0, 0.0, "invalid"), "trained"),
        ((1.0, "failed"), "trained"),
        (("failed", "failed"), "zero_variance"),
        ((0.1 + 0.2, 0.3), "zero_variance"),
    ],
)
def test_verdict(group: Callable[..., PromptGroup], outcomes: tuple[float | str, ...], verdict: str) -> None:
    assert group(*outcomes).verdict == verdict


def test_infrastructure_failure_is_never_a_score(group: Callable[..., PromptGroup]) -> None:
    assert group(1.0, "invalid", 0.25, "skipped").scores == {0: 1.0, 2: 0.25}


@pytest.mark.parametrize(
    ("rewards", "worth"), [((1.0, 0.5), 0.0), ((-3.0, -1.0), -3.0), ((2.0, -0.5), -0.5), ((), 0.0)]
)
def test_a_failing_agent_is_worth_the_worst_graded_sample_and_never_more_than_nothing(
    group: Callable[..., PromptGroup], rewards: tuple[float, ...], worth: float
) -> None:
    assert group(*rewards, "failed").scores[len(rewards)] == worth

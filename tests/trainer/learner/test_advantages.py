from __future__ import annotations

import statistics

import pytest

from osmosis_trainer.learner.advantages import group_advantages


def test_reward_minus_group_mean():
    assert group_advantages([1.0, 0.0, 0.0, 1.0]) == [0.5, -0.5, -0.5, 0.5]
    assert sum(group_advantages([0.1, 0.7, 0.35])) == pytest.approx(0.0, abs=1e-15)


def test_scaling_divides_by_the_sample_deviation():
    rewards = [0.2, 0.9, 0.4, 0.4]
    wanted = [(r - statistics.mean(rewards)) / (statistics.stdev(rewards) + 1e-4) for r in rewards]
    assert group_advantages(rewards, scale_rewards=True) == pytest.approx(wanted)


@pytest.mark.parametrize("scale", [False, True])
def test_equal_rewards_are_exactly_zero(scale: bool):
    assert group_advantages([0.1] * 7, scale_rewards=scale) == [0.0] * 7
    assert group_advantages([], scale_rewards=scale) == []


def test_a_missing_reward_is_no_number():
    with pytest.raises(ValueError, match="not finite"):
        group_advantages([1.0, float("nan")])

"""Early warning signs: each is told when it shows, not before, once, and the same after a resume."""

from __future__ import annotations

import json

import pytest

from osmosis_trainer.advice import AGAIN_AFTER, SIGNS, Advisor

HEALTHY = {
    "train/entropy_loss": 0.9,
    "rollout/zero_variance_ratio": 0.3,
    "rollout/truncated_ratio": 0.02,
    "rollout/response_lengths": 100.0,
    "train/clip_ratio": 0.01,
    "rollout/branch_ratio": 0.0,
    "rollout/raw_reward": 0.4,
    "eval/validation/reward": 0.4,
}

WRONG = {
    "entropy": {"train/entropy_loss": 0.05},
    "equal_groups": {"rollout/zero_variance_ratio": 0.9},
    "truncation": {"rollout/truncated_ratio": 0.4},
    "length": {"rollout/response_lengths": 350.0},
    "clipping": {"train/clip_ratio": 0.3},
    "edited_history": {"rollout/branch_ratio": 0.8},
    "overfitting": {"rollout/raw_reward": 0.7, "eval/validation/reward": 0.3},
}
WORDS = {
    "entropy": "entropy fell from 0.9 to 0.05",
    "equal_groups": "90% of the prompt groups",
    "truncation": "40% of the rollouts are cut off",
    "length": "grew from 100 to 350",
    "clipping": "30% of the trained tokens",
    "edited_history": "in 80% of the rollouts",
    "overfitting": "fell from 0.40 to 0.30",
}


def test_every_sign_is_tested():
    assert set(WRONG) == set(WORDS) == set(SIGNS)


def test_a_healthy_run_hears_nothing():
    advisor = Advisor()
    assert [text for step in range(1, 60) for text in advisor.look(step, HEALTHY)] == []
    # Rewards that rise, groups that become alike towards the end of learning: no reason to speak.
    better = HEALTHY | {"rollout/raw_reward": 0.9, "eval/validation/reward": 0.9, "train/entropy_loss": 0.2}
    assert [text for step in range(60, 90) for text in advisor.look(step, better)] == []


@pytest.mark.parametrize("name", WRONG)
def test_a_sign_is_told_once_and_again_only_if_it_stays(name: str):
    advisor = Advisor()
    for step in range(1, 7):
        assert advisor.look(step, HEALTHY) == []
    told = {}
    for step in range(7, 7 + AGAIN_AFTER + 3):
        for text in advisor.look(step, HEALTHY | WRONG[name]):
            told[step] = text
        advisor = Advisor.load(json.loads(json.dumps(advisor.dump())))  # as after a resume
    first, again = sorted(told)
    assert again - first == AGAIN_AFTER
    assert WORDS[name] in told[again]
    for step in range(30, 33):
        advisor.look(step, HEALTHY)
    for step in range(100, 110):
        assert advisor.look(step, HEALTHY) == []  # it is over
    assert any(advisor.look(step, HEALTHY | WRONG[name]) for step in range(110, 115))


def test_metrics_that_are_missing_are_no_sign():
    advisor = Advisor()
    assert [advisor.look(step, {}) for step in range(10)] == [[]] * 10

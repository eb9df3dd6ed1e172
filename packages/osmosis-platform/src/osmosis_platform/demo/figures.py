"""What the demo measured."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Score:
    """Mean reward and pass rate of one evaluation over `attempts` attempts, with 95 % intervals (None when unknown)."""

    run: str
    reward: float
    pass_rate: float
    attempts: int
    reward_interval: tuple[float, float] | None
    pass_interval: tuple[float, float] | None

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "run": self.run,
            "reward": self.reward,
            "pass_rate": self.pass_rate,
            "attempts": self.attempts,
            "reward_interval": list(self.reward_interval) if self.reward_interval else None,
            "pass_interval": list(self.pass_interval) if self.pass_interval else None,
        }


@dataclass(slots=True)
class Figures:
    """The figures of one demo. `reward_curve` is the mean training reward per step."""

    seed: int
    rollout: str
    base_sampled: Score
    base_greedy: Score
    trained_sampled: Score
    trained_greedy: Score
    reward_curve: list[float]
    training_run: str
    model: str
    answer: str
    pages: dict[str, str]
    seconds: dict[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The file of `--json`."""
        return {
            "base_reward": self.base_sampled.reward,
            "trained_reward": self.trained_sampled.reward,
            "improvement": self.trained_sampled.reward - self.base_sampled.reward,
            "reward_curve": self.reward_curve,
            "seconds": {key: round(value, 1) for key, value in self.seconds.items()},
            "seed": self.seed,
            "rollout": self.rollout,
            "model": self.model,
            "training_run": self.training_run,
            "answer": self.answer,
            "pages": self.pages,
            "base": {"sampled": self.base_sampled.to_json(), "greedy": self.base_greedy.to_json()},
            "trained": {"sampled": self.trained_sampled.to_json(), "greedy": self.trained_greedy.to_json()},
        }

"""The ledger: every token of every rollout is trained once or has a reason why it is not."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum


class TokenFate(StrEnum):
    """What became of a token. All but `TRAINED` are reasons for a mask of 0 or for leaving a row out."""

    TRAINED = "trained"
    CONTEXT = "context"
    """Not sampled by the policy: prompts, tool results, template marks."""
    BRANCH_DUPLICATE = "branch_duplicate"
    """Sampled once, trained in an earlier row; here it is the context of another branch."""
    TRUNCATED = "truncated"
    """Part of an answer that was cut off by its token limit."""
    STALE = "stale"
    """Sampled by a policy older than allowed."""
    OVER_BUDGET = "over_budget"
    """Beyond the longest row that is trained."""
    INVALID_REWARD = "invalid_reward"
    """The rollout has no reward: infrastructure failed or the grader returned nothing usable."""
    TOO_FEW_VALID = "too_few_valid"
    """Fewer than two rollouts of the group have a reward: there is nothing to compare with."""
    SKIPPED = "skipped"
    """The grader removed the sample, or its prompt is longer than allowed."""
    ZERO_VARIANCE = "zero_variance"
    """All rollouts of the group have the same reward: nothing to learn from."""


class Ledger:
    """Token counts by fate. The sum is the length of all rows before anything was cut from them."""

    def __init__(self) -> None:
        self.tokens: Counter[TokenFate] = Counter()

    def add(self, fate: TokenFate, tokens: int) -> None:
        """Count `tokens` tokens."""
        if tokens:
            self.tokens[fate] += tokens

    def merge(self, other: Ledger) -> None:
        """Add the counts of another ledger."""
        self.tokens.update(other.tokens)

    @property
    def total(self) -> int:
        """All tokens counted."""
        return self.tokens.total()

    def metrics(self) -> dict[str, float]:
        """`ledger/<fate>` for every fate, zeros included."""
        return {f"ledger/{fate}": float(self.tokens[fate]) for fate in TokenFate}

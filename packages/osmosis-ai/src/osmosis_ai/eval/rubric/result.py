"""What a judge says of one text."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class JudgeUsage:
    """What one call of a judge took, as far as the provider tells: tokens, and US dollars by LiteLLM's price table."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cost_usd: float | None = None


@dataclass(slots=True)
class RubricResult:
    """A score within the range that was asked for, and why. ``usage`` says what the call took; it is no part of equality."""

    score: float
    explanation: str
    usage: JudgeUsage | None = field(default=None, compare=False, repr=False)

"""What every answer and file says of a finished attempt."""

from __future__ import annotations

from typing import Any

from osmosis_platform.runs.models import RunAttempt

_NAMES = (
    *("row_index", "run_index", "rollout_id", "status", "reward", "tokens", "duration_ms"),
    *("error_type", "error_message"),
)


def attempt_facts(attempt: RunAttempt) -> dict[str, Any]:
    """Its place, outcome and cost; not what it left (trajectory, artifacts)."""
    return {name: getattr(attempt, name) for name in _NAMES}

"""A finished attempt at one row."""

from dataclasses import asdict, dataclass, field
from typing import Any

from osmosis_ai.worker.artifacts import Artifact


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """What is kept of an attempt. ``status`` is ``success``, ``failed`` or ``skipped``; ``reward`` only with success."""

    row_index: int
    run_index: int
    rollout_id: str
    status: str
    reward: float | None = None
    tokens: int | None = None
    duration_ms: float | None = None
    error_type: str | None = None
    error_message: str | None = None
    trajectory_blob: str | None = None
    artifacts: list[Artifact] = field(default_factory=list)

    def fields(self) -> dict[str, Any]:
        """The record as JSON, without what is not known."""
        return {key: value for key, value in asdict(self).items() if value not in (None, [])}

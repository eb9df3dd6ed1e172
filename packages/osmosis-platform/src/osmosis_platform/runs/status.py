"""The status machine of runs. Every change of `Run.status` goes through `transition`."""

from __future__ import annotations

from osmosis_platform.db.types import utc_now
from osmosis_platform.errors import Conflict
from osmosis_platform.runs.models import TERMINAL, Run

_FLOW: dict[str, frozenset[str]] = {
    "pending": frozenset({"running", "failed", "stopped"}),
    "running": frozenset({"finished", "failed", "stopped", "crashed"}),
    # Only a retry leaves a terminal status, and only evaluations can be retried.
    "finished": frozenset({"pending"}),
    "failed": frozenset({"pending"}),
    "stopped": frozenset({"pending"}),
    "crashed": frozenset(),
    "killed": frozenset(),
}


def transition(run: Run, status: str, *, error: str | None = None, error_type: str | None = None) -> bool:
    """Move a run to `status`; returns False when it is there already.

    `error` is the sentence shown to people for failed and crashed. Raises Conflict for a move that the machine does not have.
    """
    if run.status == status:
        return False
    allowed = status in _FLOW[run.status]
    if run.kind == "eval" and status == "crashed":
        allowed = False
    if run.kind != "eval" and run.status in TERMINAL:
        allowed = False
    if not allowed:
        raise Conflict(
            f"Run {run.name} is {run.status}; it cannot become {status}.", code="INVALID_TRANSITION"
        )
    now = utc_now()
    if status == "running":
        run.started_at = run.started_at or now
    if status == "pending":
        run.completed_at = run.error = run.error_type = run.stop_requested_at = None
        run.restarts = 0
        run.round += 1
    if status in TERMINAL:
        run.completed_at = now
        run.phase = None
        run.run_token_hash = None
    if error is not None:
        run.error, run.error_type = error, error_type
    run.status = status
    return True

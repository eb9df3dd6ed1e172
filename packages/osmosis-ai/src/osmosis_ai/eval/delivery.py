"""From a verdict to a committed attempt: trajectory, artifacts, record."""

import asyncio
import json
from pathlib import Path

from osmosis_ai.eval.attempt import AttemptRecord
from osmosis_ai.eval.journal import Verdict
from osmosis_ai.eval.sink import EvalSink
from osmosis_ai.worker.artifacts import store_artifacts
from osmosis_ai.worker.rollout_files import wait_for_trajectory

_ERROR_CHARS = 4000


class Delivery:
    """Brings the files of attempts and their records to a sink."""

    def __init__(self, sink: EvalSink, artifact_root: Path, *, trajectory_wait_s: float) -> None:
        self._sink = sink
        self._artifact_root = artifact_root
        self._trajectory_wait_s = trajectory_wait_s

    async def deliver(self, verdict: Verdict, *, trajectory_wait_s: float | None = None) -> AttemptRecord:
        """Store the files, then commit the record. Doing it twice stores and commits the same once."""
        limit = self._trajectory_wait_s if trajectory_wait_s is None else trajectory_wait_s
        # Without a sample the server writes no document; it is looked for once, not waited for.
        trajectory = await wait_for_trajectory(
            self._artifact_root, verdict.rollout_id, wait_s=limit if verdict.has_sample else 0.0
        )
        blob = None if trajectory is None else await self._sink.store(trajectory)
        tokens = verdict.tokens
        if tokens is None and trajectory is not None:
            tokens = await asyncio.to_thread(_tokens_of, trajectory)
        record = AttemptRecord(
            row_index=verdict.row_index,
            run_index=verdict.run_index,
            rollout_id=verdict.rollout_id,
            status=verdict.status,
            reward=verdict.reward,
            tokens=tokens,
            duration_ms=verdict.duration_ms,
            error_type=verdict.error_type,
            error_message=None if verdict.error_message is None else verdict.error_message[:_ERROR_CHARS],
            trajectory_blob=blob,
            artifacts=await store_artifacts(self._artifact_root, verdict.rollout_id, self._sink.store),
        )
        await self._sink.attempt(record)
        return record


def _tokens_of(trajectory: bytes) -> int | None:
    totals = json.loads(trajectory).get("final_metrics") or {}
    counts = [totals.get("total_prompt_tokens"), totals.get("total_completion_tokens")]
    known = [count for count in counts if isinstance(count, int)]
    return sum(known) if known else None

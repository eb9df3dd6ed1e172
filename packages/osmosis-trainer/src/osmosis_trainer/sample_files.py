"""The files that rollouts wrote, for the samples that people read."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from osmosis_ai.worker.artifacts import store_artifacts
from osmosis_ai.worker.rollout_files import wait_for_trajectory
from osmosis_ai.worker.run_client import RunApiError
from osmosis_trainer.collect.attempt import Attempt
from osmosis_trainer.deadline import DeadlineError, within

logger = logging.getLogger(__name__)

WAIT_S = 10.0
UPLOAD_DEADLINE_S = 600.0


class SampleFiles:
    """Uploads what rollouts left below `artifact_root`, as evaluations do. Nothing here ends a run.

    A rollout server may go on archiving a rollout after its verdict; it writes the trajectory last. Up to `wait_s` seconds are
    spent on that, half as many after each rollout that left none: some servers never write one.
    """

    def __init__(self, artifact_root: Path, *, wait_s: float = WAIT_S) -> None:
        self._root = artifact_root
        self._longest = self._wait_s = wait_s

    async def store(
        self, attempt: Attempt, put: Callable[[bytes], Awaitable[str]]
    ) -> list[dict[str, Any]] | None:
        """`path`, `size` and `sha256` of each file of the rollout, given to `put`; None without files.

        Files that the platform does not take are left out, with a warning in the run's log.
        """
        await self._until_archived(attempt)
        what = f"the upload of the artifacts of {attempt.key}"
        try:
            async with within(UPLOAD_DEADLINE_S, what):
                found = await store_artifacts(self._root, attempt.rollout_id, put)
        except (DeadlineError, RunApiError) as error:
            logger.warning("the artifacts of rollout %s are left out: %s", attempt.rollout_id, error)
            return None
        return [asdict(file) for file in found] or None

    async def _until_archived(self, attempt: Attempt) -> None:
        # Only a graded rollout is sure to have a sample, and so a trajectory.
        wait_s = self._wait_s if attempt.outcome == "graded" else 0.0
        found = await wait_for_trajectory(self._root, attempt.rollout_id, wait_s=wait_s)
        if wait_s:
            self._wait_s = self._longest if found is not None else wait_s / 2

"""Background rollouts of one server, and its end."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

logger = logging.getLogger(__name__)


class RolloutTasks:
    """Keeps the tasks of running rollouts alive and ends them with the server."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self.accepting = True

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, rollout: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run the rollout in the background."""
        task = asyncio.get_running_loop().create_task(rollout)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    async def drain(self, timeout_sec: float, *, cleanup_sec: float) -> None:
        """Accept nothing more, let running rollouts finish for ``timeout_sec``, then cancel them and wait for their end.

        A cancelled rollout posts no callbacks: its controller finds the server gone. Code that swallows its cancellation is
        left behind after ``cleanup_sec``.
        """
        self.accepting = False
        if not self._tasks:
            return
        logger.info("Waiting up to %.0f s for %d rollouts", timeout_sec, len(self._tasks))
        _, unfinished = await asyncio.wait(set(self._tasks), timeout=timeout_sec)
        if not unfinished:
            return
        for task in unfinished:
            task.cancel()
        _, stuck = await asyncio.wait(unfinished, timeout=cleanup_sec)
        for task in stuck:
            task.cancel()
            logger.error("A rollout goes on %.0f s after it was cancelled; leaving it behind", cleanup_sec)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("A rollout task crashed", exc_info=error)
